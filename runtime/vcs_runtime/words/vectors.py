"""Static vectors of words, from the table of token vectors of a bundle's embedder.

The vector of a word is the mean of the rows of its tokens, less the mean row of the table, scaled
to unit length. No model runs for it. The embedder's graph reads the rows by a `Gather` of
`input_ids`. The table is located in the bytes of the graph, whose field numbers are defined by
`onnx.proto` (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.onnx_check import BYTES, VARINT, Reader, Refusal
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.tokenizer import encoded, load_tokenizer
from vcs_runtime.util.lru import LRUCache

#: ONNX's floating-point types, with the bytes of a number.
FLOAT_TYPES: Final = {1: ("float32", 4), 10: ("float16", 2), 16: ("bfloat16", 2)}
_STANDARD = ("", "ai.onnx")
_EXTERNAL = 1  # TensorProto.data_location


@dataclass(frozen=True)
class StoredRows:
    """A table of token vectors in a file of a bundle."""

    file: Path
    offset: int  # bytes
    rows: int  # tokens
    width: int
    number: str  # "float32", "float16" or "bfloat16", little-endian


def find_word_rows(bundle: Bundle) -> StoredRows:
    """Find the table in which a bundle's embedder looks up token vectors.

    Raises BundleError if no table is found.
    """
    spec = bundle.manifest.embedder
    if spec is None:
        raise BundleError(f"{bundle.root}: word vectors need an embedder, and the bundle has none")
    path = bundle.path(spec.model)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            tensor = _Tables(data).of_tokens()
        return _stored(tensor, path, bundle.sizes_beside(spec.model))
    except Refusal as error:
        raise BundleError(
            f"{bundle.root}: there are no word vectors for the embedder {spec.name}: {error}"
        ) from None
    except (OSError, ValueError) as error:  # mmap refuses an empty file with ValueError
        raise BundleError(f"{path}: cannot be read: {error}") from None


@dataclass
class _Tensor:
    """Fields of a tensor in a graph."""

    dims: list[int] = field(default_factory=list)
    kind: int = 0
    raw: tuple[int, int] | None = None
    location: int = 0
    external: dict[str, str] = field(default_factory=dict)


class _Tables(Reader):
    """One pass over the nodes and tensors of a graph."""

    def of_tokens(self) -> _Tensor:
        """Return the tensor whose rows the graph looks up by `input_ids`."""
        names: set[str] = set()
        tensors: dict[str, tuple[int, int]] = {}
        for number, wire, start, stop in self.fields(0, len(self.data)):
            is_graph = number == 7 and wire == BYTES
            if not is_graph:
                continue
            for part, kind, begin, end in self.fields(start, stop):
                if part == 1 and kind == BYTES:  # a node
                    names |= self._looked_up(begin, end)
                elif part == 5 and kind == BYTES:  # a tensor
                    tensors[self._name(begin, end)] = begin, end
        tables = sorted(names & tensors.keys())
        if len(tables) != 1:
            raise Refusal(
                f"its graph has {len(tables)} tables of tokens, but exactly one in fp32, fp16 or"
                " bf16 is needed"
            )
        return self._tensor(*tensors[tables[0]])

    def _looked_up(self, start: int, stop: int) -> set[str]:
        """Return the name of the table if a node gathers rows of it by `input_ids`."""
        inputs: list[str] = []
        operator = domain = ""
        for number, wire, begin, end in self.fields(start, stop):
            if wire != BYTES:
                continue
            if number == 1:
                inputs.append(self.text(begin, end))
            elif number == 4:
                operator = self.text(begin, end)
            elif number == 7:
                domain = self.text(begin, end)
            elif number == 5 and self._is_other_axis(begin, end):
                return set()
        is_gather = operator == "Gather" and domain in _STANDARD
        if is_gather and inputs[1:] == ["input_ids"]:
            return set(inputs[:1])
        return set()

    def _is_other_axis(self, start: int, stop: int) -> bool:
        """Return whether an attribute makes a Gather read along another axis than the first."""
        for number, wire, begin, end in self.fields(start, stop):
            if number == 3 and wire == VARINT and self.varint(begin, end)[0] != 0:
                return True
        return False

    def _name(self, start: int, stop: int) -> str:
        for number, wire, begin, end in self.fields(start, stop):
            if number == 8 and wire == BYTES:
                return self.text(begin, end)
        return ""

    def _tensor(self, start: int, stop: int) -> _Tensor:
        tensor = _Tensor()
        for number, wire, begin, end in self.fields(start, stop):
            if number == 1:  # a writer may put the numbers of a list together, or each by itself
                while begin < end:
                    size, begin = self.varint(begin, end)
                    tensor.dims.append(size)
                    if wire == VARINT:
                        break
            elif number == 2 and wire == VARINT:
                tensor.kind = self.varint(begin, end)[0]
            elif number == 14 and wire == VARINT:
                tensor.location = self.varint(begin, end)[0]
            elif number == 9 and wire == BYTES:
                tensor.raw = begin, end
            elif number == 13 and wire == BYTES:
                entry = {1: "", 2: ""}  # key and value
                for part, _, first, last in self.fields(begin, end):
                    entry[part] = self.text(first, last)
                tensor.external[entry[1]] = entry[2]
        return tensor


def _stored(tensor: _Tensor, graph: Path, sizes: dict[str, int]) -> StoredRows:
    """Return the place of a tensor, checked to be a table of floating-point rows in its file."""
    if tensor.kind not in FLOAT_TYPES:
        raise Refusal(
            f"its token vectors are of ONNX's type {tensor.kind}, but only fp32, fp16 and bf16 can"
            " be read"
        )
    if len(tensor.dims) != 2 or not all(tensor.dims):
        raise Refusal(f"its token vectors have the shape {tuple(tensor.dims)}, not two axes")
    name, size = FLOAT_TYPES[tensor.kind]
    file, offset = graph, 0
    if tensor.location == _EXTERNAL:
        file = graph.with_name(tensor.external.get("location", ""))
        offset = int(tensor.external.get("offset") or 0)
        end = sizes.get(file.name, 0)
    elif tensor.raw:
        offset, end = tensor.raw
    else:
        raise Refusal("its token vectors are not stored as raw data")
    if offset + size * math.prod(tensor.dims) > end:
        raise Refusal(f"its token vectors reach beyond the end of {file.name}")
    return StoredRows(file, offset, tensor.dims[0], tensor.dims[1], name)


FloatArray = npt.NDArray[np.float32]

#: Bytes of the vectors that are remembered: some 20,000 words of the default bundle.
MEMORY_BYTES: Final = 32 << 20
_BLOCK_BYTES: Final = 1 << 20
# In some tokenizers a word has other tokens at the beginning of a text than inside it. So another
# word stands before it.
_LEAD: Final = "a "


class WordVectors:
    """The static vectors of words."""

    def __init__(self, bundle: Bundle, memory_bytes: int = MEMORY_BYTES) -> None:
        stored = find_word_rows(bundle)
        assert bundle.manifest.embedder is not None  # find_word_rows would have refused it
        self.width = stored.width
        self._tokenizer = load_tokenizer(bundle.path(bundle.manifest.embedder.tokenizer))
        tokens = 1 + max(self._tokenizer.get_vocab().values(), default=0)
        if tokens > stored.rows:
            raise BundleError(
                f"{bundle.root}: the tokenizer has {tokens:,} tokens, but the embedder has vectors"
                f" of {stored.rows:,}"
            )
        self._number = stored.number
        self._rows = np.memmap(
            stored.file, _dtype(stored.number), "r", stored.offset, (stored.rows, stored.width)
        )
        self._mean = _mean_row(stored)
        if not np.isfinite(self._mean).all():
            raise BundleError(f"{bundle.root}: NaN or infinity among the embedder's token vectors")
        self._remembered: LRUCache[FloatArray] = LRUCache(
            memory_bytes, lambda vector: vector.nbytes
        )

    def of(self, forms: Sequence[str]) -> FloatArray:
        """Return the vectors of words."""
        vectors = np.zeros((len(forms), self.width), np.float32)
        for row, form in enumerate(forms):
            vector = self._remembered.get(form)
            if vector is None:
                vector = self._computed(form)
                self._remembered.put(form, vector)
            vectors[row] = vector
        return vectors

    def _computed(self, form: str) -> FloatArray:
        encoding = encoded(self._tokenizer.encode, _LEAD + form)
        places = zip(encoding.ids, encoding.offsets, strict=True)
        ids = [token for token, (_, stop) in places if stop > len(_LEAD)]
        if not ids:
            return np.zeros(self.width, np.float32)
        vector = _widened(self._rows[ids], self._number).sum(axis=0) / len(ids) - self._mean
        # An exact sum, in place of one whose order a library would choose for the processor.
        length = math.sqrt(math.fsum((vector * vector).tolist()))
        unit: FloatArray = (vector / length if length else vector).astype(np.float32)
        return unit


def _dtype(number: str) -> np.dtype[Any]:
    return np.dtype({"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}[number])


def _widened(rows: npt.NDArray[Any], number: str) -> npt.NDArray[np.float64]:
    """Return rows as float64; NumPy lacks bfloat16, which is the upper half of a float32."""
    if number == "bfloat16":
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float64)


def _mean_row(stored: StoredRows) -> npt.NDArray[np.float64]:
    """Return the mean of all rows, added in order, with little memory."""
    kind = _dtype(stored.number)
    total = np.zeros(stored.width, np.float64)
    at_once = max(1, _BLOCK_BYTES // (stored.width * kind.itemsize))
    with stored.file.open("rb") as file:
        file.seek(stored.offset)
        for start in range(0, stored.rows, at_once):
            count = min(at_once, stored.rows - start)
            block = np.frombuffer(file.read(count * stored.width * kind.itemsize), kind)
            rows = _widened(block.reshape(count, stored.width), stored.number)
            rows[0] += total  # so that the sum does not depend on where a block ends
            total = np.add.reduce(rows, axis=0)
    return total / stored.rows
