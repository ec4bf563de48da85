"""Graphs with more weights than memory: the weights are streamed into a file, or not copied at all.

A tensor that the graph uses unchanged can stay in the checkpoint's file. The graph then points into
that file, which the bundle holds as a hard link. All other tensors go into one file beside the
graph. Two graphs may share that file: a tensor that both use in the same type is stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.errors import CheckpointError
from vcs_export.graph.builder import aligned
from vcs_export.graph.nodes import Graph
from vcs_export.quantization.nbits import BITS, BLOCK, PRECISION, packed_shape, quantise

FLOAT = ir.DataType.FLOAT
COMPUTE = {
    "fp32": FLOAT,
    "fp16": ir.DataType.FLOAT16,
    "bf16": ir.DataType.BFLOAT16,
    PRECISION: FLOAT,
}
"""The type in which a precision multiplies matrices. All else is float32."""

CUDA_COMPUTE = COMPUTE | {PRECISION: ir.DataType.FLOAT16}
"""Matrix types on CUDA, where MatMulNBits is about ten times slower with float32 than with fp16.

It widens the weights to the type of its inputs, and a GPU's matrix units multiply halves.
"""

# MatMulNBits may round its input to 8 bits with a scale for each block. On a CPU that is about
# three times as fast.
_INT8_INPUTS = 4

Place = tuple[int, int]
"""Offset and size in bytes of a tensor in a file."""


class DataFile:
    """The data file beside graphs, hashed while it is written from start to end.

    Use it in `with`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._end = 0
        self._places: dict[tuple[str, ir.DataType], Place] = {}

    def __enter__(self) -> DataFile:
        self._file = self.path.open("wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def sha256(self) -> str:
        """The hash of the bytes so far, 64 hex digits."""
        return self._hash.hexdigest()

    def place(self, name: str, kind: ir.DataType, blocks: Iterable[NDArray[Any]]) -> Place:
        """Write a tensor's blocks from the next page on, unless another graph has written them."""
        if (name, kind) not in self._places:
            self._places[name, kind] = self._append(blocks)
        return self._places[name, kind]

    def read(self, name: str, kind: ir.DataType) -> NDArray[Any]:
        """Read a tensor that was written, flat."""
        offset, size = self._places[name, kind]
        self._file.flush()
        numpy = kind.numpy().newbyteorder("<")
        return np.fromfile(self.path, numpy, size // numpy.itemsize, offset=offset)

    def _append(self, blocks: Iterable[NDArray[Any]]) -> Place:
        offset = aligned(self._end)
        self._bytes(bytes(offset - self._end))
        for block in blocks:
            kind = block.dtype
            if kind.kind in "fiu":
                # ONNX's raw data is little-endian on every machine.
                kind = kind.newbyteorder("<")
            self._bytes(np.ascontiguousarray(block, kind).view(np.uint8).data)
        return offset, self._end - offset

    def _bytes(self, content: bytes | memoryview) -> None:
        self._file.write(content)
        self._hash.update(content)
        self._end += memoryview(content).nbytes


class StreamedGraph(Graph):
    """A graph over the tensors of a checkpoint.

    With `link`, tensors that are used as they are stay in the checkpoint's files, which `links`
    names. `cuda` is the type in which a graph for CUDA alone multiplies matrices.
    """

    def __init__(
        self,
        opset: int,
        precision: str,
        data: DataFile,
        link: bool,
        progress: Callable[[int], None] = lambda count: None,
        *,
        cuda: ir.DataType | None = None,
    ) -> None:
        super().__init__(opset)
        self.compute = COMPUTE[precision] if cuda is None else cuda
        self.links: dict[str, Path] = {}
        self._quantised = precision == PRECISION
        self._data = data
        self._link = link
        self.used = progress
        self._values: dict[str, ir.Value] = {}

    def cast(self, x: ir.Value, kind: ir.DataType, of: ir.DataType) -> ir.Value:
        """Convert x from the type `of` to the type `kind`."""
        return x if kind == of else self.op("Cast", x, to=int(kind))

    def computed(self, x: ir.Value) -> ir.Value:
        """Convert a float32 value to the type in which matrices are multiplied."""
        return self.cast(x, self.compute, FLOAT)

    def exact(self, x: ir.Value) -> ir.Value:
        """Convert a value of the type in which matrices are multiplied to float32."""
        return self.cast(x, FLOAT, self.compute)

    def table(self, tensor: StoredTensor, rows: ir.Value) -> ir.Value:
        """Look up rows of a tensor, float32.

        It is stored in the smaller of two types, the checkpoint's and the type of matrices.
        """
        kind = min(tensor.type, self.compute, key=lambda item: item.bitwidth)
        return self.cast(self.op("Gather", self.stored(tensor, kind), rows), FLOAT, kind)

    def stored(self, tensor: StoredTensor, kind: ir.DataType) -> ir.Value:
        """Add a tensor of the checkpoint in the type `kind`."""
        if tensor.name in self._values:
            raise ValueError(f"{tensor.name}: added twice")
        self.used(tensor.nbytes)
        if self._link and tensor.type == kind:
            self.links[tensor.shard] = tensor.file
            tensor.check()
            place = tensor.offset, tensor.nbytes
            return self._external(tensor.name, tensor.shard, place, kind, tensor.shape)
        return self._append(tensor.name, _converted(tensor, kind), kind, tensor.shape)

    def array(self, name: str, array: NDArray[Any], kind: ir.DataType) -> ir.Value:
        """Add a computed array in the type `kind`."""
        return self._append(name, [array.astype(kind.numpy(), copy=False)], kind, array.shape)

    def linear(
        self,
        x: ir.Value,
        weight: StoredTensor,
        bias: StoredTensor | None = None,
        exact: bool = False,
    ) -> ir.Value:
        """Add `x W^T + b` for x `(n, in)`, W `(out, in)`, b `(out,)`; if `exact`, in float32."""
        if self._quantised and not exact:
            product = self._nbits(x, weight)
            if bias is None:
                return product
            return self.op("Add", product, self.stored(bias, self.compute))
        kind = FLOAT if exact else self.compute
        inputs = [x, self.stored(weight, kind)]
        if bias is not None:
            inputs.append(self.stored(bias, kind))
        return self.op("Gemm", *inputs, transB=1)

    def save(self, output: ir.Value, name: str, shape: Sequence[str | int], model: Path) -> None:
        """Write the graph with its float32 output, which is called `name`. Raises OSError."""
        self._write(output, name, shape, model, list(self._values.values()))

    def _nbits(self, x: ir.Value, weight: StoredTensor) -> ir.Value:
        """Add a product with a weight that is quantised while it is written."""
        scales: list[NDArray[np.float32]] = []

        def packed() -> Iterable[NDArray[np.uint8]]:
            for stored, scale in quantise(weight.blocks()):
                scales.append(scale)
                yield stored

        shape = packed_shape(weight.shape)
        self.used(weight.nbytes)
        levels = self._append(f"{weight.name}.levels", packed(), ir.DataType.UINT8, shape)
        name = f"{weight.name}.scales"
        if scales:
            stored = np.concatenate(scales)
        else:
            # Another graph of this file has written the levels already, and the scales in float32.
            stored = self._data.read(name, FLOAT).reshape(shape[:2])
        scale = self.array(name, stored, self.compute)
        return self.microsoft_op(
            "MatMulNBits",
            x,
            levels,
            scale,
            N=weight.shape[0],
            K=weight.shape[1],
            bits=BITS,
            block_size=BLOCK,
            accuracy_level=_INT8_INPUTS,
        )

    def _append(
        self, name: str, blocks: Iterable[NDArray[Any]], kind: ir.DataType, shape: tuple[int, ...]
    ) -> ir.Value:
        place = self._data.place(name, kind, blocks)
        return self._external(name, self._data.path.name, place, kind, shape)

    def _external(
        self, name: str, file: str, place: Place, kind: ir.DataType, shape: tuple[int, ...]
    ) -> ir.Value:
        if name in self._values:
            raise ValueError(f"{name}: added twice")
        offset, length = place
        tensor = ir.ExternalTensor(
            file,
            offset,
            length,
            kind,
            shape=ir.Shape(shape),
            name=name,
            base_dir=self._data.path.parent,
        )
        value = ir.Value(
            name=name, shape=ir.Shape(shape), type=ir.TensorType(kind), const_value=tensor
        )
        self._values[name] = value
        return value


def _converted(tensor: StoredTensor, kind: ir.DataType) -> Iterator[NDArray[Any]]:
    """Yield a tensor's blocks in the type `kind`.

    Raises CheckpointError if a number becomes infinite.
    """
    narrower = kind == ir.DataType.FLOAT16 != tensor.type
    for block in tensor.blocks():
        with np.errstate(over="ignore"):
            converted = block.astype(kind.numpy(), copy=False)
        if narrower and not np.isfinite(converted).all():
            raise CheckpointError(
                f"{tensor.file}: the tensor {tensor.name} has numbers that do not fit into float16"
            )
        yield converted
