"""Graphs around a TensorRT engine: the one that stands for it, and the one with attention spelt out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx_ir as ir

from vcs_export.errors import ExportError

_SOURCE = "TensorrtExecutionProvider"
_DOMAIN = "com.microsoft"
_LOWEST = float(np.finfo(np.float32).min)


def write_context(model: Path, engine: Path, architecture: str) -> Path:
    """Write the graph that ONNX Runtime opens in place of a model: one node, which names an engine.

    The node is EPContext. ONNX Runtime's provider for TensorRT reads the engine's file ("embed mode" 0),
    because an engine inside the graph could have no more than 2 GB. The attributes are those that the
    provider itself writes.
    """
    source = ir.load(model).graph
    inputs, outputs = (
        [ir.Value(name=item.name, type=item.type, shape=item.shape) for item in items]
        for items in (source.inputs, source.outputs)
    )
    attributes: dict[str, int | str] = {
        "embed_mode": 0,
        "ep_cache_context": engine.name,
        "hardware_architecture": architecture.removeprefix("sm"),
        "main_context": 1,
        "max_size": 0,
        "onnx_model_filename": model.name,
        "source": _SOURCE,
    }
    converted = ir.convenience.convert_attributes(attributes)
    node = ir.Node(_DOMAIN, "EPContext", inputs, converted, outputs=outputs)
    graph = ir.Graph(inputs, outputs, nodes=[node], name="engine", opset_imports={"": 23, _DOMAIN: 1})
    written = engine.with_name("model.onnx")
    ir.save(ir.Model(graph, ir_version=10), written)
    return written


def spell_out_attention(model: Path, folder: Path) -> Path:
    """Write a graph whose Attention nodes are products and Softmax, with links to the weights of the other.

    TensorRT 10 turns Attention into one fused kernel, and builds no engine where it has none that fits
    (https://github.com/NVIDIA/TensorRT/issues/4705). Elementary operators can always be built.
    """
    import onnx
    from onnx import shape_inference

    proto = shape_inference.infer_shapes(onnx.load(model, load_external_data=False), data_prop=True)
    graph = ir.from_proto(proto).graph
    nodes = [node for node in graph if node.op_type == "Attention" and not node.domain]
    if not nodes:
        return model
    for node in nodes:
        _spell_out(graph, node)
    for path in model.parent.iterdir():
        if path.name != model.name and path.is_file():
            (folder / path.name).symlink_to(path.resolve())
    written = folder / model.name
    ir.save(ir.Model(graph, ir_version=proto.ir_version), written)
    return written


def _spell_out(graph: ir.Graph, node: ir.Node) -> None:
    """Put elementary operators in the place of a node with Q, K and V `(batch, heads, tokens, size)`."""
    query, key, value, *rest = node.inputs
    mask = rest[0] if rest else None
    causal = node.attributes.get("is_causal")
    size = query.shape[3] if query and query.shape else None
    if (causal and causal.as_int()) or any(rest[1:]) or not isinstance(size, int):
        raise ExportError(f"the node {node.name} (Attention) cannot be spelt out")
    scale = node.attributes.get("scale")
    new = _Nodes(f"{node.name}.spelt_out")
    factor = new.op("CastLike", new.constant(scale.as_float() if scale else 1 / math.sqrt(size)), query)
    heads = new.op("Shape", query, start=1, end=2)
    keys, values = (new.repeated(x, heads) for x in (key, value))
    turned = new.op("Transpose", keys, perm=[0, 1, 3, 2])
    # The factor comes first: a product of half precision has no more than 65,504.
    product = new.op("MatMul", new.op("Mul", query, factor), turned)
    scores = new.op("Cast", product, to=int(ir.DataType.FLOAT))
    if mask is not None:
        scores = new.op("Where", mask, scores, new.constant(_LOWEST))
    weights = new.op("CastLike", new.op("Softmax", scores, axis=-1), query)
    new.op("MatMul", weights, values)
    ir.convenience.replace_nodes_and_values(
        graph, node, [node], new.nodes, [node.outputs[0]], [new.nodes[-1].outputs[0]]
    )


class _Nodes:
    """The nodes that take the place of one, in their order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.nodes: list[ir.Node] = []

    def op(
        self, kind: str, *inputs: ir.Value | None, **attributes: int | list[int] | ir.TensorProtocol
    ) -> ir.Value:
        name = f"{self._name}.{len(self.nodes)}"
        output = ir.Value(name=name)
        converted = ir.convenience.convert_attributes(attributes)
        self.nodes.append(ir.Node("", kind, inputs, converted, outputs=[output], name=name))
        return output

    def constant(self, number: float) -> ir.Value:
        return self.op("Constant", value=ir.Tensor(np.array(number, np.float32)))

    def ints(self, *numbers: int) -> ir.Value:
        return self.op("Constant", value=ir.Tensor(np.array(numbers, np.int64)))

    def repeated(self, x: ir.Value | None, heads: ir.Value) -> ir.Value:
        """Repeat heads of keys or values for the queries that share them."""
        groups, size = (self.op("Shape", x, start=axis, end=axis + 1) for axis in (1, 3))
        single = self.op("Concat", self.ints(0), groups, self.ints(1, -1), size, axis=0)
        copies = self.op("Concat", self.ints(1, 1), self.op("Div", heads, groups), self.ints(1, 1), axis=0)
        several = self.op("Expand", self.op("Reshape", x, single), copies)
        joined = self.op("Concat", self.ints(0), heads, self.ints(-1), size, axis=0)
        return self.op("Reshape", several, joined)


def folder_name(gpu: str) -> str:
    """Return a GPU's name as that of a folder: "NVIDIA H200" is "NVIDIA-H200"."""
    kept = [letter if letter.isascii() and letter.isalnum() else " " for letter in gpu]
    return "-".join("".join(kept).split()) or "gpu"
