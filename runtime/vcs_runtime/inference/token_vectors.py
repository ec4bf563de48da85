"""Contextual vectors of a text's tokens, which an encoder computes before the text's vector.

A layer's states are an inner value of the graph. They become a second output of the same session,
so that one run gives both. On a CPU, ONNX Runtime gives a text's vector the same bits with this
output and without it.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.onnx_check import Reader, written
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.tokenizer import NO_SPAN, Sequences

FloatArray = npt.NDArray[Any]
# The last normalisation of a layer has the same name as in the checkpoint. Layer 0 is the
# embeddings.
_EMBEDDINGS = re.compile(r"(?:^|\.)embeddings\.LayerNorm\.weight$")
_CLOSING = re.compile(r"(?:^|\.)layer\.(\d+)\.output\.LayerNorm\.weight(?:\.fp16)?$")
# Operators of normalisations, and which of their inputs is the scale.
_SCALES = {"LayerNormalization": 1, "SkipLayerNormalization": 2}
# Fields of messages in `onnx.proto`.
_GRAPH = 7
_NODE, _OUTPUT = 1, 12  # of a graph
_NAME = 1  # of an output
_INPUTS, _OUTPUTS, _OPERATOR = 1, 2, 4  # of a node


class TokenLayer(NamedTuple):
    """A layer of an encoder whose states are shown."""

    value: str  # name of the states in the graph
    number: int | None  # 0 for the embeddings; None if the graph does not number its layers


class TokenRequest(NamedTuple):
    """A request for token vectors in addition to the vectors of texts."""

    layer: TokenLayer
    texts: Collection[str]


class TokenVectors(NamedTuple):
    """The tokens of a text: of all its windows, one after the other."""

    vectors: FloatArray  # (tokens, width), not of unit length
    ids: npt.NDArray[np.int32]  # (tokens,)
    # (tokens, 2): characters of the text; -1 for special and instruction tokens.
    spans: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.vectors.nbytes + self.ids.nbytes + self.spans.nbytes

    def of_text(self) -> TokenVectors:
        """Return the tokens without special tokens and the tokens of an instruction."""
        in_text = self.spans[:, 0] >= 0
        return TokenVectors(self.vectors[in_text], self.ids[in_text], self.spans[in_text])

    def to_bytes(self) -> bytes:
        """Return tokens whose vectors are float16 as bytes."""
        head = np.array(self.vectors.shape, "<u4")
        return (
            head.tobytes()
            + self.ids.astype("<i4").tobytes()
            + self.spans.astype("<i4").tobytes()
            + self.vectors.astype("<f2").tobytes()
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> TokenVectors | None:
        """Return the tokens of `to_bytes`, or None if the bytes are something else."""
        if len(data) < 8:
            return None
        count, width = np.frombuffer(data, "<u4", 2).tolist()
        if len(data) != 8 + count * (12 + 2 * width):
            return None
        numbers = np.frombuffer(data, "<i4", 3 * count, 8)
        vectors = np.frombuffer(data, "<f2", count * width, 8 + 12 * count).reshape(count, width)
        return cls(vectors, numbers[:count], numbers[count:].reshape(count, 2))


def find_layer(model: Path, layer: int | None, bundle: str) -> TokenLayer:
    """Find the states of a layer in the graph of an encoder; raises BundleError without them.

    Layer 0 is the embeddings. None: the output of the last normalisation, which the pooling takes.
    """
    last: str | None = None
    layers: dict[int, str] = {}
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for scale, value in _normalisations(Reader(data)):
            last = value
            closing = _CLOSING.search(scale)
            if _EMBEDDINGS.search(scale):
                layers[0] = value
            elif closing:
                layers[int(closing.group(1)) + 1] = value
    if last is None:
        raise nothing_to_show(bundle)
    if layer is None:
        numbers = {value: number for number, value in layers.items()}
        return TokenLayer(last, numbers.get(last))
    if layer in layers:
        return TokenLayer(layers[layer], layer)
    if layers:
        raise BundleError(
            f"{bundle}: its encoder has no layer {layer}, only the layers {min(layers)} to"
            f" {max(layers)}"
        )
    raise BundleError(f"{bundle}: only the last layer of its encoder can be read")


def nothing_to_show(bundle: str) -> BundleError:
    """Return the error for a bundle whose graph has no states of single tokens."""
    return BundleError(f"{bundle}: its embedder has no vectors of single tokens")


def shown_graph(model: Path, values: Sequence[str]) -> bytes:
    """Return a graph with inner values as further outputs; its weights stay where they are.

    Readers of protobuf merge messages of the same field, and join their lists. A second graph with
    nothing but outputs therefore adds these outputs to the first graph.
    """
    data = model.read_bytes()
    existing = set(_outputs(Reader(data)))
    outputs = b""
    for value in values:
        if value not in existing:
            outputs += written(_OUTPUT, written(_NAME, value.encode()))
    return data + written(_GRAPH, outputs)


def _outputs(reader: Reader) -> Iterator[str]:
    """Yield the names of a graph's outputs."""
    for start, stop in _children(reader, _OUTPUT):
        for field, _, begin, end in reader.fields(start, stop):
            if field == _NAME:
                yield reader.text(begin, end)


def _normalisations(reader: Reader) -> Iterator[tuple[str, str]]:
    """Yield the names of each normalisation's scale and output, in the order of the graph."""
    for start, stop in _children(reader, _NODE):
        names: dict[int, list[str]] = {_INPUTS: [], _OUTPUTS: [], _OPERATOR: []}
        for field, _, begin, end in reader.fields(start, stop):
            if field in names:
                names[field].append(reader.text(begin, end))
        scale = _SCALES.get("".join(names[_OPERATOR]))
        if scale is not None:
            yield names[_INPUTS][scale], names[_OUTPUTS][0]


def _children(reader: Reader, kind: int) -> Iterator[tuple[int, int]]:
    """Yield the places of a graph's messages of one kind: `_NODE` or `_OUTPUT`."""
    for field, _, start, stop in reader.fields(0, len(reader.data)):
        if field != _GRAPH:
            continue
        for part, _, begin, end in reader.fields(start, stop):
            if part == kind:
                yield begin, end


class CollectedStates:
    """The states of some texts' tokens, gathered batch by batch."""

    def __init__(
        self,
        request: TokenRequest,
        texts: Sequence[str],
        sequences: Sequences,
        kind: npt.DTypeLike,
        name: str,
    ) -> None:
        self.layer = request.layer
        self._sequences = sequences
        self._kind = np.dtype(kind)
        self._name = name
        wanted = frozenset(request.texts)
        self._texts = {i: text for i, text in enumerate(texts) if text in wanted}
        self._states: dict[int, FloatArray] = {}

    def wanted(self, rows: Iterable[int]) -> bool:
        """Whether any of these sequences belongs to a text whose tokens are wanted."""
        return any(self._sequences.owners[row] in self._texts for row in rows)

    def keep(self, rows: Sequence[int], states: Iterable[FloatArray]) -> None:
        """Store the wanted states of a batch, `(places, width)` for each sequence.

        Raises BundleError if a state is not finite.
        """
        for row, places in zip(rows, states, strict=False):  # fillers come last
            if self._sequences.owners[row] not in self._texts:
                continue
            tokens = len(self._sequences.ids[row])  # padding comes after them
            with np.errstate(over="ignore"):
                vectors = places[:tokens].astype(self._kind)
            if not np.isfinite(vectors).all():
                raise BundleError(
                    f"{self._name}: vectors of tokens are NaN, infinite, or beyond {self._kind}"
                )
            self._states[row] = vectors

    def by_text(self) -> dict[str, TokenVectors]:
        """Return the tokens by text, special tokens included.

        Call this method once, after all batches.
        """
        rows_of: dict[int, list[int]] = {}
        for row, owner in enumerate(self._sequences.owners):
            if owner in self._texts:
                rows_of.setdefault(owner, []).append(row)
        return {self._texts[owner]: self._joined(rows) for owner, rows in rows_of.items()}

    def _joined(self, rows: Sequence[int]) -> TokenVectors:
        """Return the tokens of a text from the sequences of its windows."""
        assert self._sequences.spans is not None
        vectors, ids, spans = [], [], []
        for row in rows:
            vectors.append(self._states.pop(row))
            ids.append(np.array(self._sequences.ids[row], np.int32))
            places = np.array(self._sequences.spans[row], np.int32)
            spans.append(places.reshape(-1, len(NO_SPAN)))
        return TokenVectors(np.concatenate(vectors), np.concatenate(ids), np.concatenate(spans))
