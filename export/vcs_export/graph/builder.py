"""A thin layer over onnx-ir: nodes with generated names, and weights in one file whose layout is ours.

The weights' file names the weights (its sha256 stands in every signature), so its bytes may depend on
nothing but the tensors and the order in which a graph asks for them: each starts at a multiple of
`ALIGNMENT`, gaps are zeros, and no library decides on either.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

ALIGNMENT = 4096
"""A page, so that a runtime may map each tensor where it lies (the ONNX specification recommends it)."""

_PRODUCER = "vcs-runtime"
# The oldest file format that knows the operator sets used here; readers refuse files that are too new.
_IR_VERSION = 8


class GraphBuilder:
    """Collects the nodes and tensors of one graph. Nodes must be added after what they read.

    Names follow from the order of the calls: the same calls give the same bytes.
    """

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._inputs: list[ir.Value] = []
        self._nodes: list[ir.Node] = []
        self._constants: dict[str, ir.Value] = {}
        self._weights: dict[str, NDArray[np.float32]] = {}
        self._offsets: dict[str, tuple[int, ir.Value]] = {}
        self._end = 0

    def input(self, name: str, shape: Sequence[str | int]) -> ir.Value:
        """An int64 input; dimensions are sizes or names."""
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.INT64))
        self._inputs.append(value)
        return value

    def op(self, kind: str, *inputs: ir.Value, **attributes: int | float | Sequence[int]) -> ir.Value:
        """A standard operator with one output."""
        name = f"{kind}_{len(self._nodes)}"
        output = ir.Value(name=f"{name}_out")
        self._nodes.append(ir.node(kind, inputs, attributes, outputs=[output], name=name))
        return output

    def ints(self, *values: int) -> ir.Value:
        """A constant int64 vector, stored in the graph's own file."""
        return self._constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def scalar(self, value: float) -> ir.Value:
        """A constant float32 scalar, stored in the graph's own file."""
        return self._constant(f"scalar_{value!r}", np.array(value, np.float32))

    def weight(self, name: str, array: NDArray[np.float32]) -> ir.Value:
        """A float32 tensor that goes into the weights' file, in the order of the calls."""
        if array.dtype != np.float32:
            raise TypeError(f"{name}: float32 was expected, not {array.dtype}")
        if name in self._weights:
            raise ValueError(f"{name}: added twice")
        offset = -(-self._end // ALIGNMENT) * ALIGNMENT
        self._end = offset + array.nbytes
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(ir.DataType.FLOAT))
        self._weights[name] = array
        self._offsets[name] = (offset, value)
        return value

    def linear(
        self, name: str, x: ir.Value, weight: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> ir.Value:
        """`x W^T + b` over the last axis of x `(..., in)`; weight `(out, in)`, bias `(out,)`."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", weight.T))
        return self.op("Add", product, self.weight(f"{name}.bias", bias))

    def layer_norm(
        self, name: str, x: ir.Value, weight: NDArray[np.float32], bias: NDArray[np.float32], epsilon: float
    ) -> ir.Value:
        """Layer normalisation over the last axis."""
        scale, shift = self.weight(f"{name}.weight", weight), self.weight(f"{name}.bias", bias)
        return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)

    def save(
        self, output: ir.Value, name: str, shape: Sequence[str | int], model: Path, weights: Path
    ) -> None:
        """Write the graph with its one float32 output, called `name`, and the weights' file beside it.

        `weights` must lie in the folder of `model`: the graph refers to it by its bare name. Raises OSError.
        """
        output.name, output.shape, output.type = name, ir.Shape(shape), ir.TensorType(ir.DataType.FLOAT)
        with weights.open("wb") as file:
            for key, array in self._weights.items():
                _write_at(file, self._offsets[key][0], array)
        for key, (offset, value) in self._offsets.items():
            value.const_value = ir.ExternalTensor(
                weights.name,
                offset,
                self._weights[key].nbytes,
                ir.DataType.FLOAT,
                shape=ir.Shape(self._weights[key].shape),
                name=key,
                base_dir=weights.parent,
            )
        graph = ir.Graph(
            self._inputs,
            [output],
            nodes=self._nodes,
            initializers=[*self._constants.values(), *(value for _, value in self._offsets.values())],
            opset_imports={"": self._opset},
            name="encoder",
        )
        proto = ir.to_proto(ir.Model(graph, ir_version=_IR_VERSION, producer_name=_PRODUCER))
        model.write_bytes(proto.SerializeToString(deterministic=True))

    def _constant(self, name: str, array: NDArray[np.int64] | NDArray[np.float32]) -> ir.Value:
        if name not in self._constants:
            tensor = ir.tensor(array, name=name)
            self._constants[name] = ir.Value(
                name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
            )
        return self._constants[name]


def _write_at(file: BinaryIO, offset: int, array: NDArray[np.float32]) -> None:
    file.write(bytes(offset - file.tell()))
    # Little-endian on every machine: that is the format of ONNX's raw data.
    file.write(np.ascontiguousarray(array, dtype="<f4").data)
