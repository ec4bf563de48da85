"""Batches of token sequences, and the inputs of a graph for each input layout.

On a CPU a sequence meets the same shapes, and hence the same arithmetic, whatever else is in its
batch. It is padded to a length that depends on itself alone, and a batch holds only sequences of
one padded length. The padding step is small, so that little padding is computed; a packed graph
computes none. Its numbers of rows are even (`_fillers`).

On a GPU a batch mixes lengths, since there the number of rows alone changes the choice of kernels.
A vector then depends on its batch within rounding, unless all batches have fixed shapes (`Shape`).

Kernels are chosen, and sums are split, by the shapes of a run. Fixed ones depend on the length of
each text alone: texts are divided into classes by length, and each run has texts of one class, and
as many rows and tokens as every other run of it. Fillers take the places that texts leave. A matrix
product computes each row by itself, and attention, norms and pooling each text or token, so the
place of a text does not matter either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.layouts import PADDING_STEP, POOL_GROUP, padded_length

RUN_TOKENS = 2048
"""Tokens of a run with texts of at most half as many. One text alone takes such a run, too."""

# Widths of runs without padding, and their rows. With more classes a pair of texts takes more runs,
# and with fewer rows the runs of a job are not full (the script `gpu/invariant_cost` at 07564bf).
_TOKEN_CLASSES = {64: 128, 1024: 12}
_LONG_STEP = 1024  # of the widths of longer texts, each of which has a run of its own
_LEAST_FILLER = 64
_NARROWEST = 16  # of padded runs, whose widths are 16, 24, 32, 48, 64, 96 ...


@dataclass(frozen=True)
class Shape:
    """The shape of all runs with texts of one class."""

    width: int  # most tokens of a text
    rows: int  # texts and fillers
    # Of all texts and fillers, in layouts that compute no padding; 0 in padded layouts.
    tokens: int = 0

    def fits(self, texts: int, tokens: int) -> bool:
        """Whether so many texts with so many tokens fit into one run, and fillers can fill it."""
        fillers = self.rows - texts
        return fillers >= 0 and (
            not self.tokens or fillers <= self.tokens - tokens <= fillers * self.width
        )

    def fillers(self, texts: Sequence[int]) -> list[int]:
        """Return the lengths of the fillers beside texts of these lengths."""
        lengths = [1] * (self.rows - len(texts))
        left = self.tokens - sum(texts) - len(lengths)
        for i in range(len(lengths) if self.tokens else 0):
            lengths[i] += min(left, self.width - 1)
            left -= lengths[i] - 1
        return lengths


ShapeOf = Callable[[int], Shape]
"""Returns the shape of the runs for a text, given its number of tokens."""


def token_shape(length: int, widest: int) -> Shape:
    """Return the shape for a text of `length` tokens in a layout that computes no padding.

    No text or filler is longer than `widest`: the model has no positions beyond it.
    """
    for most, rows in _TOKEN_CLASSES.items():
        if length <= most:
            width = min(most, widest)
            # Even the shortest text alone can be filled up.
            return Shape(width, rows, min(RUN_TOKENS, 1 + (rows - 1) * width))
    width = min(-(-length // _LONG_STEP) * _LONG_STEP, widest)
    return Shape(width, 2, width + _LEAST_FILLER)


def padded_shape(length: int, widest: int, most_rows: Callable[[int], float]) -> Shape:
    """Return the shape for a text of `length` tokens in a padded layout, no wider than `widest`.

    `most_rows` returns the largest number of rows of a batch, by its width.
    """
    width, next_width = _NARROWEST, _NARROWEST * 3 // 2
    while width < length:
        width, next_width = next_width, 2 * width
    width = min(width, widest)
    return Shape(width, int(max(1, min(RUN_TOKENS // width, most_rows(width)))))


def fixed_groups(lengths: Sequence[int], shape_of: ShapeOf) -> Iterator[tuple[list[int], Shape]]:
    """Group texts, of which `lengths` are the tokens, into runs, each of texts of one shape.

    Longest texts come first, and in padded layouts equal lengths keep their order. Every text is in
    one run.
    """
    classes: dict[Shape, list[int]] = {}
    for text in _longest_first(lengths):
        classes.setdefault(shape_of(lengths[text]), []).append(text)
    for shape, texts in classes.items():
        while texts:
            run, texts = _filled(texts, lengths, shape)
            yield run, shape


def _longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the numbers of texts by length; equal lengths keep their order."""
    return [*np.argsort(np.negative(lengths), kind="stable").tolist()]


def _filled(texts: list[int], lengths: Sequence[int], shape: Shape) -> tuple[list[int], list[int]]:
    """Return a run with the longest texts that fit, and the other texts."""
    run: list[int] = []
    others: list[int] = []
    tokens = 0
    for text in texts:
        if shape.fits(len(run) + 1, tokens + lengths[text]):
            run.append(text)
            tokens += lengths[text]
        else:
            others.append(text)
    return run, others


IntArray = npt.NDArray[np.int64]
TokenIds = Sequence[int] | IntArray
Inputs = dict[str, IntArray]

# Tokens of one run. On a CPU larger batches only take more memory (`benchmarks/end_to_end.py`).
TOKEN_BUDGET = {"ort-cpu": 2048, "openvino": 2048, "ort-cuda": 16384, "ort-tensorrt": 32768}
# Padded lengths are multiples of this where the provider wants more than `PADDING_STEP`.
_WIDTH_STEP = {"openvino": 16, "ort-tensorrt": 8}
# Largest batches of mixed lengths: places, padding included, for each token of the batch. A batch
# of so few places that a GPU is hardly faster with less may have more padding. In a packed graph
# only attention and rotation see padding. In a varlen graph none is computed: a thread block of the
# attention has 128 places of a head, and ends at once if they are empty. At 16 places a token such
# blocks take an estimated 2 % of a run.
_MOST_PLACES = {"packed": (2, 4096), "varlen": (16, 65536)}
_MOST_PADDED_PLACES = (1.25, 2048)


RowLimit = Callable[[int], float]
"""Returns the largest number of rows of a batch, given its padded length."""


def _no_limit(length: int) -> float:
    return math.inf


def width_step(provider_name: str, max_tokens: int) -> int:
    """Return the padding multiple for a provider and the window of a model.

    Kernels of fused attention take widths that are multiples of 4, and TensorRT's of 8. OpenVINO
    compiles its kernels for each new shape, and multiplies in tiles of 16: fewer widths make it a
    quarter faster, although more padding is computed (`benchmarks/end_to_end.py`). Tables of
    positions end at a multiple of `PADDING_STEP`.
    """
    wide = _WIDTH_STEP.get(provider_name, PADDING_STEP)
    return wide if padded_length(max_tokens) % wide == 0 else PADDING_STEP


def fixed_shapes(
    layout: str, max_tokens: int, most_rows: RowLimit, step: int = PADDING_STEP
) -> ShapeOf:
    """Return the function that computes the fixed shapes of a layout's batches.

    `max_tokens` is the model's longest input in tokens.
    """
    if layout in _MOST_PLACES:
        return lambda length: token_shape(length, max_tokens)
    widest = padded_length(max_tokens, step)
    return lambda length: padded_shape(length, widest, most_rows)


@dataclass(frozen=True)
class Batch:
    """One run of the model."""

    rows: list[int]  # numbers of the sequences
    inputs: Inputs
    fillers: int = 0  # rows of the inputs after those sequences, whose output is not used


# Rows and width of a batch, and the lengths of its fillers.
_Group = tuple[list[int], int, Sequence[int]]


def groups(
    lengths: Sequence[int],
    token_budget: int,
    step: int = PADDING_STEP,
    most_rows: RowLimit = _no_limit,
) -> Iterator[tuple[list[int], int]]:
    """Group sequences into batches by padded length; yield row numbers and the padded length.

    All sequences of a batch have the same padded length, a multiple of `step`.

    Longest sequences come first, and equal lengths keep their order. A sequence longer than the
    budget, which counts padding, has a batch of its own. Every sequence is in exactly one batch.
    """
    order = _longest_first(lengths)
    widths = np.maximum(1, -(-np.array(lengths, np.int64)[order] // step)) * step
    changes = np.flatnonzero(np.diff(widths, prepend=0)).tolist()
    for start, stop in pairwise([*changes, len(order)]):
        width = int(widths[start])
        most = int(max(1, min(token_budget // width, most_rows(width))))
        yield from ((order[i : min(i + most, stop)], width) for i in range(start, stop, most))


def mixed_groups(
    lengths: Sequence[int],
    token_budget: int,
    layout: str,
    most_rows: RowLimit = _no_limit,
    step: int = 1,
) -> Iterator[tuple[list[int], int]]:
    """Group sequences of any lengths into batches, padded to the longest sequence of each.

    A batch has at most 1.25 times as many places as tokens, or 2,048. If it is packed, it has at
    most twice as many, or 4,096; if it is varlen, 16 times as many, or 65,536. For both the budget
    counts no padding.
    """
    order = _longest_first(lengths)
    a_token, small = _MOST_PLACES.get(layout, _MOST_PADDED_PLACES)
    start = 0
    while start < len(order):
        tokens = max(1, lengths[order[start]])
        width = padded_length(tokens, step)
        most = most_rows(width)
        stop = start + 1
        while stop < len(order) and stop - start < most:
            more = tokens + lengths[order[stop]]
            places = (stop - start + 1) * width
            counted = more if layout in _MOST_PLACES else places
            if counted > token_budget or places > max(small, a_token * more):
                break
            tokens = more
            stop += 1
        yield order[start:stop], width
        start = stop


def batches(
    sequences: Sequence[TokenIds],
    token_budget: int,
    layout: str = "padded",
    skip: int = 0,
    *,
    mixed: bool = False,
    most_rows: RowLimit = _no_limit,
    step: int = PADDING_STEP,
    shape_of: ShapeOf | None = None,
) -> Iterator[Batch]:
    """Cut sequences of token ids into batches with the inputs of a graph.

    The first `skip` tokens are not pooled. `mixed` batches hold several lengths. `shape_of` returns
    the fixed shape of a sequence's batch, and takes the place of the budget, `mixed`, `most_rows`
    and `step`.
    """
    if not sequences:
        return
    lengths = [*map(len, sequences)]
    if layout == "varlen" or (layout == "packed" and not mixed):
        step = 1
    grouped: Iterator[_Group]
    if shape_of is not None:
        runs = fixed_groups(lengths, shape_of)
        grouped = (
            (rows, shape.width, shape.fillers([lengths[row] for row in rows]))
            for rows, shape in runs
        )
    elif mixed:
        cut = mixed_groups(lengths, token_budget, layout, most_rows, step)
        grouped = ((rows, width, ()) for rows, width in cut)
    else:
        cut = groups(lengths, token_budget, step, most_rows)
        grouped = (
            (rows, width, _fillers(layout, lengths[rows[0]], len(rows))) for rows, width in cut
        )
    if layout == "padded":
        yield from _padded(sequences, [*grouped])
        return
    for rows, width, fillers in grouped:
        skips = np.array([skip] * len(rows) + [0] * len(fillers), np.int64)
        texts = _texts(sequences, rows, fillers)
        yield Batch(rows, _LAYOUTS[layout](texts, width, skips, shape_of is not None), len(fillers))


def _texts(
    sequences: Sequence[TokenIds], rows: Sequence[int], fillers: Sequence[int]
) -> list[TokenIds]:
    return [*map(sequences.__getitem__, rows), *([0] * length for length in fillers)]


def _fillers(layout: str, length: int, count: int) -> Sequence[int]:
    """Return the filler length that makes the number of texts and their tokens even.

    The `count` texts have `length` tokens each. The result is empty if no filler is needed.

    With AVX-512, kernels of ONNX Runtime for weights of 8 bits take rows in pairs, and round the
    odd one otherwise. Those for halves have another kernel for a single row. A packed graph has a
    row for each token, and in the last layer may have one for each text.

    A text of more than half the largest batch is alone in every batch, whose rows are then the same
    anyway. A filler would double the memory and the time of its attention, which pads all texts to
    one length.
    """
    even = layout != "packed" or count % 2 == 0 or 2 * length > TOKEN_BUDGET["ort-cpu"]
    return () if even else (2 - length % 2,)


def _lengths(sequences: Sequence[TokenIds]) -> IntArray:
    return np.fromiter(map(len, sequences), np.int64, len(sequences))


def _padded(sequences: Sequence[TokenIds], grouped: Sequence[_Group]) -> Iterator[Batch]:
    """Yield batches with `input_ids` and `attention_mask`, each of shape `(batch, width)`.

    All batches are laid out in one step.
    """
    texts = [text for rows, _, fillers in grouped for text in _texts(sequences, rows, fillers)]
    counts = [len(rows) + len(fillers) for rows, _, fillers in grouped]
    lengths, widths = _lengths(texts), np.repeat([width for _, width, _ in grouped], counts)
    own = np.tile([True, False], len(texts))  # a text's tokens, then its padding
    filled = np.repeat(own, np.stack([lengths, widths - lengths], axis=1).ravel())
    ids = np.zeros(len(filled), np.int64)  # id 0 under the mask: any would do
    ids[filled] = np.concatenate(texts)
    mask = filled.astype(np.int64)
    start = 0
    for (rows, width, fillers), count in zip(grouped, counts, strict=True):
        stop = start + count * width
        inputs = {"input_ids": ids[start:stop], "attention_mask": mask[start:stop]}
        yield Batch(
            rows, {name: part.reshape(count, width) for name, part in inputs.items()}, len(fillers)
        )
        start = stop


def _packed(sequences: list[TokenIds], width: int, skip: IntArray, fixed: bool) -> Inputs:
    """Return the concatenated tokens of all texts.

    The indices `gather` and `scatter` lead to places `(batch, width)` and back.
    """
    lengths = _lengths(sequences)
    places = np.arange(width)
    filled = places < lengths[:, None]
    first = np.cumsum(lengths) - lengths
    return {
        "input_ids": np.concatenate([np.asarray(sequence, np.int64) for sequence in sequences]),
        "gather": np.where(filled, first[:, None] + places, 0),
        "scatter": np.flatnonzero(filled),
        "lengths": lengths,
        "skip": skip,
    }


def unpadded(sequences: Sequence[TokenIds], width: int) -> Inputs:
    """Return the concatenated tokens of all texts, and where each text lies.

    The inputs are those in `bundle.layouts.UNPADDED`.
    """
    lengths = _lengths(sequences)
    filled = np.arange(width) < lengths[:, None]
    return {
        "input_ids": np.concatenate([np.asarray(sequence, np.int64) for sequence in sequences]),
        "positions": np.nonzero(filled)[1],
        "starts": np.concatenate([[0], np.cumsum(lengths)]),
        "places": (
            np.concatenate([np.flatnonzero(filled), np.flatnonzero(~filled)]).reshape(filled.shape)
        ),
    }


def _varlen(sequences: list[TokenIds], width: int, skip: IntArray, fixed: bool) -> Inputs:
    """Return the concatenated tokens, and where texts and the groups of their pooled tokens lie.

    In a batch of a fixed shape all texts have as many groups as the longest may have, some of them
    empty. Each then has its groups at a multiple of their number, and a sum over all groups treats
    all texts alike.
    """
    lengths = _lengths(sequences)
    inputs = unpadded(sequences, width)
    starts = inputs["starts"]
    counts = lengths - skip
    groups = np.full(len(lengths), -(-width // POOL_GROUP)) if fixed else -(-counts // POOL_GROUP)
    owners = np.repeat(np.arange(len(sequences)), groups)
    # Of a group in its text.
    number = np.arange(len(owners)) - np.repeat(np.cumsum(groups) - groups, groups)
    place = skip[owners, None] + number[:, None] * POOL_GROUP + np.arange(POOL_GROUP)
    return {
        **inputs,
        "pool": np.where(place < lengths[owners, None], starts[owners, None] + place, -1),
        "owners": owners,
        "counts": counts,
    }


_LAYOUTS: dict[str, Callable[[list[TokenIds], int, IntArray, bool], Inputs]] = {
    "packed": _packed,
    "varlen": _varlen,
}
