"""Graphs whose weights are in one file with a fixed layout.

The sha256 of the weights' file names the weights in every signature. Its bytes may therefore depend
only on the tensors and the order in which a graph adds them. Each tensor starts at a multiple of
`ALIGNMENT`, and gaps are zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.graph.nodes import Graph

ALIGNMENT = 4096
"""One page, as the ONNX specification recommends, so that a runtime can map each tensor in place.
"""

Weights = NDArray[np.float32] | NDArray[np.float16] | NDArray[np.int8]

# Rows of a table that are converted at a time, so that no second copy of the table is held.
_BLOCK_ROWS = 4096
_LARGE = 1024  # bytes from which a foreign graph's tensor goes into the weights' file


def aligned(end: int) -> int:
    """Return the offset of the next tensor in a file of `end` bytes."""
    return -(-end // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class StoredWeights:
    """A finished weights' file, to which other graphs in its folder may refer."""

    path: Path
    places: Mapping[str, tuple[int, int]]  # offset and size in bytes of each tensor, by name

    def offset(self, name: str, array: Weights) -> int | None:
        """Return the tensor's offset in the file, or None if no tensor has that name and bytes."""
        offset, size = self.places.get(name, (0, -1))
        if size != array.nbytes:
            return None
        with self.path.open("rb") as file:
            file.seek(offset)
            stored = file.read(size)
        return offset if stored == _stored_bytes(array).tobytes() else None


class GraphBuilder(Graph):
    """A graph of an encoder, whose weights are arrays and go into one file beside it.

    With "fp16" all arithmetic is in half precision. With "int8" tables are stored as int8, and all
    else is float32. A tensor that `shared` has, with the same name and bytes, is not stored again.
    """

    def __init__(self, opset: int, precision: str = "fp32", *shared: StoredWeights) -> None:
        super().__init__(opset)
        self._float = np.dtype(np.float16 if precision == "fp16" else np.float32)
        self._small_tables = precision == "int8"
        self._weights: dict[str, Weights] = {}
        self._offsets: dict[str, tuple[int, ir.Value]] = {}
        self._shared = shared
        self._borrowed: list[ir.Value] = []
        self._end = 0

    @property
    def float_type(self) -> int:
        """The ONNX number of the type of the arithmetic, for Cast."""
        return int(ir.DataType.from_numpy(self._float))

    @property
    def lowest(self) -> float:
        """The number that hides a key when it is added to its score.

        A row without keys gives no NaN.
        """
        # In half precision the lowest number would overflow when a score is added.
        return -1e4 if self._float == np.float16 else float(np.finfo(np.float32).min)

    def weight(self, name: str, array: Weights) -> ir.Value:
        """Add a tensor to the weights file, in call order; float16 and int8 keep their type."""
        if array.dtype not in (np.float32, np.float16, np.int8):
            raise TypeError(f"{name}: float32 was expected, not {array.dtype}")
        if name in self._weights:
            raise ValueError(f"{name}: added twice")
        stored = array
        if array.dtype == np.float32:
            stored = array.astype(self._float, copy=False)
        for other in self._shared:
            if (place := other.offset(name, stored)) is not None:
                value = _external(name, other.path, place, stored)
                self._borrowed.append(value)
                return value
        kind = ir.TensorType(ir.DataType.from_numpy(stored.dtype))
        value = ir.Value(name=name, shape=ir.Shape(stored.shape), type=kind)
        self._place(name, stored, value)
        return value

    def _place(self, name: str, stored: Weights, value: ir.Value) -> None:
        """Give a tensor the next place in the weights' file."""
        offset = aligned(self._end)
        self._end = offset + stored.nbytes
        self._weights[name] = stored
        self._offsets[name] = (offset, value)

    def absorb(self, graph: ir.Graph) -> None:
        """Take over the nodes and weights of another graph, which loses them.

        The inputs of the other graph must have been replaced by values of this one. Raises
        ValueError if an operator is not ONNX's own.
        """
        # Names get a prefix, because both graphs may number their nodes.
        for number, node in enumerate(graph):
            if node.domain not in ("", "ai.onnx"):
                raise ValueError(f"the operator {node.op_type} is of {node.domain}, not of ONNX")
            node.name = f"inner_{number}"
            for place, output in enumerate(node.outputs):
                output.name = f"inner_{number}_{place}"
        # Large tensors go into the weights' file, and small ones into the graph's file.
        values: dict[str, ir.Value] = {}
        for old, value in sorted(graph.initializers.items()):
            tensor = value.const_value
            if tensor is None:
                raise ValueError(f"the initializer {old} has no value")
            name = f"inner.{old}"
            values[name] = value
            if tensor.dtype == ir.DataType.FLOAT and tensor.nbytes >= _LARGE:
                # The nodes refer to this value object, so it must be the stored one.
                self._place(name, tensor.numpy(), value)
            else:
                value.const_value = ir.tensor(tensor.numpy(), name=name)
                self._constants[name] = value
        # Values and nodes belong to one graph: the other one must let go of them first.
        nodes = list(graph)
        graph.outputs.clear()
        graph.initializers.clear()
        for name, value in values.items():
            value.name = name
        graph.remove(nodes)
        self._nodes.extend(nodes)

    def rows(self, name: str, table: NDArray[np.float32], ids: ir.Value) -> ir.Value:
        """Look up the rows `ids` `(...)` of a table `(n, width)`: `(..., width)`, float."""
        if not self._small_tables:
            return self.op("Gather", self.weight(name, table), ids)
        # Each row has a scale. Rare words have short vectors, which one for all would round to 0.
        levels = np.empty(table.shape, np.int8)
        scale = np.empty((len(table), 1), np.float32)
        for start in range(0, len(table), _BLOCK_ROWS):
            part = slice(start, start + _BLOCK_ROWS)
            largest = np.abs(table[part]).max(axis=1, keepdims=True)
            scale[part] = np.maximum(largest / 127, np.finfo(np.float32).tiny)
            levels[part] = np.rint(table[part] / scale[part])
        rows = self.op("Gather", self.weight(name, levels), ids)
        scales = self.op("Gather", self.weight(f"{name}.scale", scale), ids)
        return self.op("Mul", self.op("Cast", rows, to=self.float_type), scales)

    def linear(
        self,
        name: str,
        x: ir.Value,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32] | None = None,
    ) -> ir.Value:
        """Add `x W^T + b` over the last axis of x `(..., in)`.

        The weight is `(out, in)`, and the bias is `(out,)` or None.
        """
        product = self.op("MatMul", x, self.weight(f"{name}.weight", weight.T))
        if bias is None:
            return product
        return self.op("Add", product, self.weight(f"{name}.bias", bias))

    def layer_norm(
        self,
        name: str,
        x: ir.Value,
        weight: NDArray[np.float32],
        bias: NDArray[np.float32] | None,
        epsilon: float,
    ) -> ir.Value:
        """Add a layer normalisation over the last axis, with a bias or without."""
        inputs = [self.weight(f"{name}.weight", weight)]
        if bias is not None:
            inputs.append(self.weight(f"{name}.bias", bias))
        return self.op("LayerNormalization", x, *inputs, axis=-1, epsilon=epsilon)

    def save(
        self, output: ir.Value, name: str, shape: Sequence[str | int], model: Path, weights: Path
    ) -> StoredWeights:
        """Write the graph with its float32 output, and its unshared weights into a file beside it.

        Raises OSError.
        """
        if self._float != np.float32:
            output = self.op("Cast", output, to=int(ir.DataType.FLOAT))
        if self._weights:
            with weights.open("wb") as file:
                for key, array in self._weights.items():
                    _write_at(file, self._offsets[key][0], array)
        values: list[ir.Value] = []
        places: dict[str, tuple[int, int]] = {}
        for key, (offset, value) in self._offsets.items():
            array = self._weights[key]
            value.const_value = _external(key, weights, offset, array).const_value
            values.append(value)
            places[key] = (offset, array.nbytes)
        self._write(output, name, shape, model, [*values, *self._borrowed])
        return StoredWeights(weights, places)


def _external(name: str, file: Path, offset: int, array: Weights) -> ir.Value:
    """Return a value whose tensor is in a file beside the graph.

    The tensor has the shape and type of `array`.
    """
    kind, shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    tensor = ir.ExternalTensor(
        file.name, offset, array.nbytes, kind, shape=shape, name=name, base_dir=file.parent
    )
    return ir.Value(name=name, shape=shape, type=ir.TensorType(kind), const_value=tensor)


def _write_at(file: BinaryIO, offset: int, array: Weights) -> None:
    file.write(bytes(offset - file.tell()))
    file.write(_stored_bytes(array).data)


def _stored_bytes(array: Weights) -> NDArray[Any]:
    """Return the array in the byte order of ONNX's raw data: little-endian on every machine."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
