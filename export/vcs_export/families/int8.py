"""The tier in int8: the default's embedder with its linear layers in int8.

Activations have fixed scales, so that no vector depends on its batch. Each of their channels is
divided by a factor, which the weights take up (SmoothQuant, arXiv:2211.10438). Scales, zero points
and factors are constants (`models/README.md`). Weights have 7 bits: processors without VNNI add two
products in 16 bits, and would cut larger sums off.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace as changed
from numpy.typing import NDArray
from safetensors.numpy import load_file

from vcs_export.checks.proofs import with_proofs
from vcs_export.families.static import NOTICE, as_array, notice
from vcs_export.write import BundleInfo, BundleWriter
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.bundle.paths import INT8, INT8_EMBEDDER

_LARGEST = 63  # of a weight
_MODEL = "embedder/model.int8.onnx"
_HOW = """\
The linear layers of this bundle's embedder are in int8. They were made from the weights of the
bundle
{}
with constants that the vcs-runtime project has measured (Apache-2.0):
{}
What follows is that bundle's notice.

"""


def build_int8(
    source: Bundle,
    training: Path,
    target: Path,
    *,
    replace: bool = False,
    log: Callable[[str], None] = print,
) -> Path:
    """Build a bundle with the linear layers of `source` in int8, and copies of its other files."""
    spec, segmenter = source.manifest.embedder, source.manifest.segmenter
    assert spec is not None
    assert segmenter is not None
    files = {NOTICE: notice(source, training, _HOW).encode()}
    left_out = {NOTICE, spec.model, *([spec.cuda.model] if spec.cuda else [])}
    info = BundleInfo(INT8, source.manifest.licence, source.manifest.source, files, replace)
    with BundleWriter(target, info) as bundle:
        for entry in source.manifest.files:
            if entry.path not in left_out:
                bundle.link(source.path(entry.path), entry.path)
        write_int8(source.path(spec.model), training, bundle.file(_MODEL))
        embedder = changed(
            spec, name=INT8_EMBEDDER, model=_MODEL, precision=INT8, cuda=None, proof=None
        )
        return bundle.commit(
            embedder=embedder, segmenter=segmenter, prove=partial(with_proofs, log=log)
        )


def write_int8(source: Path, training: Path, model: Path) -> None:
    """Write the graph `source` with its linear layers in int8, and their weights, into one file."""
    fixed = load_file(training)
    loaded = ir.load(source)
    graph = loaded.graph
    quantized: dict[ir.Value, ir.Value] = {}  # inputs of linear layers, as these read them

    def constant(name: str, array: NDArray[Any]) -> ir.Value:
        tensor = ir.tensor(array, name=name)
        kind, shape = ir.TensorType(tensor.dtype), ir.Shape(array.shape)
        value = ir.Value(name=name, shape=shape, type=kind, const_value=tensor)
        graph.register_initializer(value)
        return value

    def before(node: ir.Node, kind: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        name = f"{inputs[0].name}.{kind}"
        value = ir.Value(name=name)
        graph.insert_before(node, ir.node(kind, inputs, attributes, outputs=[value], name=name))
        return value

    for node in [node for node in graph if node.op_type == "MatMul"]:
        x, weight = node.inputs
        if x is None or weight is None or weight.const_value is None:
            continue
        layer = str(weight.name).removesuffix(".weight")
        group = re.sub("(?<=self)[.].*", "", layer)  # query, key and value have the same input
        scale, zero, factors = np.split(fixed[group], [1, 2])
        matrix = as_array(weight.const_value, source.parent) * factors[:, None].astype(float)
        if layer.endswith("value"):
            # Attention averages values, so their columns can take the next layer's factors.
            after = fixed[layer.replace("self.value", "output.dense")][2:]
            matrix /= after
            bias = graph.initializers[f"{layer}.bias"]
            assert bias.const_value is not None
            shifted = as_array(bias.const_value, source.parent) / after
            bias.const_value = ir.tensor(shifted, name=bias.name)
        if x not in quantized:
            narrow = x
            if not layer.endswith("attention.output.dense"):
                narrow = before(node, "Mul", x, constant(f"{group}.factors", 1 / factors))
            grid = (
                constant(f"{group}.scale", scale[0]),
                constant(f"{group}.zero", np.array(zero[0], np.uint8)),
            )
            levels = before(node, "QuantizeLinear", narrow, *grid)
            quantized[x] = before(node, "DequantizeLinear", levels, *grid)
        steps = np.abs(matrix).max(axis=0) / _LARGEST
        levels = constant(f"{layer}.levels", np.rint(matrix / steps).astype(np.int8))
        scales = constant(f"{layer}.scales", steps.astype(np.float32))
        node.replace_input_with(0, quantized[x])
        node.replace_input_with(1, before(node, "DequantizeLinear", levels, scales, axis=1))
        del graph.initializers[str(weight.name)]
    model.write_bytes(ir.to_proto(loaded).SerializeToString(deterministic=True))
