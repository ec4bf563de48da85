"""Batches of token sequences, and the inputs of a graph for each input layout.

On a CPU a sequence always meets the same shapes, and hence the same arithmetic. Its padded length
depends on the sequence alone, and a batch holds only sequences of one padded length. The padding
step is small, so that little padding is computed. A packed graph computes no padding; its numbers
of rows are even (`_fillers`).

On a GPU a batch mixes lengths, since there the number of rows alone changes the choice of kernels.
A vector then depends on its batch within rounding, unless all batches have fixed shapes (`Shape`).

The shapes of a run decide which kernels run and how sums are split. Fixed shapes depend only on the
length of each text. Texts are divided into classes by length, and all runs of a class have the same
numbers of rows and tokens. Fillers take the unused places. The place of a text does not matter
either: a matrix product computes each row by itself, and attention, norms and pooling compute each
text or token by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.layouts import PADDING_STEP, POOL_GROUP, padded_length

RUN_TOKENS = 2048
"""Number of tokens of a run whose texts have at most half as many tokens."""

# Rows of runs without padding, by width. With more classes a pair of texts takes more runs, and
# with fewer rows the runs of a job are not full (the script `gpu/invariant_cost` at 07564bf).
_TOKEN_CLASSES = {64: 128, 1024: 12}
_LONG_STEP = 1024  # step of the widths for longer texts, each of which runs alone
_LEAST_FILLER = 64
_NARROWEST = 16  # smallest width of padded runs: the widths are 16, 24, 32, 48, 64, 96 ...


@dataclass(frozen=True)
class Shape:
    """The shape of all runs with texts of one class."""

    width: int  # largest number of tokens of a text
    rows: int  # number of texts and fillers
    # Tokens of all texts and fillers, in layouts that compute no padding; 0 in padded layouts.
    tokens: int = 0

    def fits(self, texts: int, tokens: int) -> bool:
        """Whether a run can hold this number of texts and tokens, and fillers can complete it."""
        fillers = self.rows - texts
        if fillers < 0:
            return False
        if not self.tokens:
            return True
        # Each filler has between one token and `width` tokens.
        return fillers <= self.tokens - tokens <= fillers * self.width

    def fillers(self, texts: Sequence[int]) -> list[int]:
        """Return the lengths of the fillers beside texts of these lengths."""
        lengths = [1] * (self.rows - len(texts))
        if not self.tokens:
            return lengths
        missing = self.tokens - sum(texts) - len(lengths)
        for i in range(len(lengths)):
            more = min(missing, self.width - 1)
            lengths[i] += more
            missing -= more
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
            # Fillers can complete a run even with the shortest text alone.
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
    """Group texts with these numbers of tokens into runs of one shape each.

    Longest texts come first, and in padded layouts equal lengths keep their order. Every text is in
    one run.
    """
    classes: dict[Shape, list[int]] = {}
    for text in _longest_first(lengths):
        shape = shape_of(lengths[text])
        classes.setdefault(shape, []).append(text)
    for shape, texts in classes.items():
        remaining = texts
        while remaining:
            run, remaining = _filled(remaining, lengths, shape)
            yield run, shape


def _longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the numbers of texts by length; equal lengths keep their order."""
    order: list[int] = np.argsort(np.negative(lengths), kind="stable").tolist()
    return order


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
TOKEN_BUDGET = {"ort-cpu": 2048, "openvino": 2048, "ort-cuda": 16384, "tensorrt-rtx": 32768}
TOKEN_BUDGET["tensorrt"] = TOKEN_BUDGET["tensorrt-rtx"]
# Padded lengths are multiples of this where the provider wants more than `PADDING_STEP`.
_WIDTH_STEP = {"openvino": 16, "tensorrt-rtx": 8, "tensorrt": 8}
# Limits of batches of mixed lengths: places, padding included, for each token of the batch, and the
# number of places up to which padding does not matter, since a GPU is hardly faster with fewer. In
# a packed graph only attention and rotation see padding. A varlen graph computes no padding: a
# thread block of the attention has 128 places of a head, and ends at once if they are empty. At 16
# places a token such blocks take an estimated 2 % of a run.
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
        return partial(token_shape, widest=max_tokens)
    return partial(padded_shape, widest=padded_length(max_tokens, step), most_rows=most_rows)


@dataclass(frozen=True)
class Batch:
    """One run of the model."""

    rows: list[int]  # numbers of the sequences
    inputs: Inputs
    fillers: int = 0  # number of rows after the sequences; their output is not used


class _Group(NamedTuple):
    """The sequences of a batch, before their tokens are laid out."""

    rows: list[int]  # numbers of the sequences
    width: int
    fillers: Sequence[int] = ()  # lengths of the fillers


def groups(
    lengths: Sequence[int],
    token_budget: int,
    step: int = PADDING_STEP,
    most_rows: RowLimit = _no_limit,
) -> Iterator[tuple[list[int], int]]:
    """Group sequences into batches by padded length; yield row numbers and the padded length.

    All sequences of a batch have the same padded length, a multiple of `step`.

    Longest sequences come first, and equal lengths keep their order. The budget counts padding. A
    sequence longer than the budget is alone in its batch. Every sequence is in exactly one batch.
    """
    order = _longest_first(lengths)
    widths = np.maximum(1, -(-np.array(lengths, np.int64)[order] // step)) * step
    changes = np.flatnonzero(np.diff(widths, prepend=0)).tolist()
    for start, stop in pairwise([*changes, len(order)]):
        width = int(widths[start])
        most = int(max(1, min(token_budget // width, most_rows(width))))
        for first in range(start, stop, most):
            yield order[first : min(first + most, stop)], width


def mixed_groups(
    lengths: Sequence[int],
    token_budget: int,
    layout: str,
    most_rows: RowLimit = _no_limit,
    step: int = 1,
) -> Iterator[tuple[list[int], int]]:
    """Group sequences of any lengths into batches, padded to the longest sequence of each.

    A padded batch has at most 1.25 times as many places as tokens, or 2,048 places. A packed batch
    has at most twice as many, or 4,096; a varlen batch 16 times as many, or 65,536. For packed and
    varlen batches the budget counts no padding.
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
) -> Iterator[Batch]:
    """Cut sequences of token ids into batches with the inputs of a graph.

    The first `skip` tokens are not pooled. `mixed` batches hold several lengths.
    """
    if not sequences:
        return
    lengths = list(map(len, sequences))
    if layout == "varlen" or (layout == "packed" and not mixed):
        step = 1
    grouped: list[_Group] = []
    if mixed:
        for rows, width in mixed_groups(lengths, token_budget, layout, most_rows, step):
            grouped.append(_Group(rows, width))
    else:
        for rows, width in groups(lengths, token_budget, step, most_rows):
            fillers = _fillers(layout, lengths[rows[0]], len(rows))
            grouped.append(_Group(rows, width, fillers))
    yield from _laid_out(sequences, grouped, layout, skip, fixed=False)


def fixed_batches(
    sequences: Sequence[TokenIds], shape_of: ShapeOf, layout: str = "padded", skip: int = 0
) -> Iterator[Batch]:
    """Cut sequences of token ids into batches of fixed shapes with the inputs of a graph.

    The first `skip` tokens are not pooled.
    """
    if not sequences:
        return
    lengths = list(map(len, sequences))
    grouped: list[_Group] = []
    for rows, shape in fixed_groups(lengths, shape_of):
        fillers = shape.fillers([lengths[row] for row in rows])
        grouped.append(_Group(rows, shape.width, fillers))
    yield from _laid_out(sequences, grouped, layout, skip, fixed=True)


def _laid_out(
    sequences: Sequence[TokenIds], grouped: Sequence[_Group], layout: str, skip: int, *, fixed: bool
) -> Iterator[Batch]:
    """Yield the batches of these groups with their inputs.

    With `fixed`, the shapes of the inputs depend on the group's width and number of rows alone.
    """
    if layout == "padded":
        yield from _padded(sequences, grouped)
        return
    for group in grouped:
        skips = np.array([skip] * len(group.rows) + [0] * len(group.fillers), np.int64)
        texts = _texts(sequences, group)
        if layout == "packed":
            inputs = _packed(texts, group.width, skips)
        else:
            inputs = _varlen(texts, group.width, skips, fixed)
        yield Batch(group.rows, inputs, len(group.fillers))


def _texts(sequences: Sequence[TokenIds], group: _Group) -> list[TokenIds]:
    """Return the token ids of a group's sequences and fillers."""
    texts = [sequences[row] for row in group.rows]
    for length in group.fillers:
        texts.append([0] * length)
    return texts


def _fillers(layout: str, length: int, count: int) -> Sequence[int]:
    """Return the lengths of the fillers that make the numbers of texts and of tokens even.

    The `count` texts have `length` tokens each.

    With AVX-512, kernels of ONNX Runtime for 8-bit weights take rows in pairs, and round an odd
    last row differently. For weights in half precision a single row has another kernel. A packed
    graph has a row for each token, and in the last layer may have one for each text.
    """
    if layout != "packed" or count % 2 == 0:
        return ()
    # A text of more than half the largest batch is alone in every batch, so its rows never vary. A
    # filler would double the memory and the time of its attention, which pads texts to one length.
    if 2 * length > TOKEN_BUDGET["ort-cpu"]:
        return ()
    return (2 - length % 2,)


def _lengths(sequences: Sequence[TokenIds]) -> IntArray:
    return np.fromiter(map(len, sequences), np.int64, len(sequences))


def _concatenated(sequences: Sequence[TokenIds]) -> IntArray:
    return np.concatenate([np.asarray(sequence, np.int64) for sequence in sequences])


def _padded(sequences: Sequence[TokenIds], grouped: Sequence[_Group]) -> Iterator[Batch]:
    """Yield batches with `input_ids` and `attention_mask`, each of shape `(batch, width)`.

    All batches are laid out in one step, which is faster than one at a time.
    """
    texts: list[TokenIds] = []
    widths: list[int] = []  # padded length of each text
    for group in grouped:
        texts += _texts(sequences, group)
        widths += [group.width] * (len(group.rows) + len(group.fillers))
    lengths = _lengths(texts)
    padding = np.array(widths) - lengths
    # For each text: True for its tokens, then False for its padding.
    runs = np.stack([lengths, padding], axis=1).ravel()
    filled = np.repeat(np.tile([True, False], len(texts)), runs)
    ids = np.zeros(len(filled), np.int64)  # id 0 under the mask: any id would do
    ids[filled] = np.concatenate(texts)
    mask = filled.astype(np.int64)
    start = 0
    for group in grouped:
        shape = len(group.rows) + len(group.fillers), group.width
        stop = start + shape[0] * shape[1]
        inputs = {
            "input_ids": ids[start:stop].reshape(shape),
            "attention_mask": mask[start:stop].reshape(shape),
        }
        yield Batch(group.rows, inputs, len(group.fillers))
        start = stop


def _packed(sequences: list[TokenIds], width: int, skip: IntArray) -> Inputs:
    """Return the concatenated tokens of all texts, and indices for padding them.

    `gather` leads from the tokens to places `(batch, width)`, and `scatter` back.
    """
    lengths = _lengths(sequences)
    places = np.arange(width)
    filled = places < lengths[:, None]
    first = np.cumsum(lengths) - lengths
    return {
        "input_ids": _concatenated(sequences),
        "gather": np.where(filled, first[:, None] + places, 0),
        "scatter": np.flatnonzero(filled),
        "lengths": lengths,
        "skip": skip,
    }


def unpadded(sequences: Sequence[TokenIds], width: int) -> Inputs:
    """Return the concatenated tokens of all texts, and the places of each text's tokens.

    The inputs are those in `bundle.layouts.UNPADDED`.
    """
    lengths = _lengths(sequences)
    filled = np.arange(width) < lengths[:, None]
    places = np.concatenate([np.flatnonzero(filled), np.flatnonzero(~filled)])
    return {
        "input_ids": _concatenated(sequences),
        "positions": np.nonzero(filled)[1],
        "starts": np.concatenate([[0], np.cumsum(lengths)]),
        "places": places.reshape(filled.shape),
    }


def _varlen(sequences: list[TokenIds], width: int, skip: IntArray, fixed: bool) -> Inputs:
    """Return the concatenated tokens, and the places of texts and of groups of pooled tokens.

    In a batch of a fixed shape, every text has as many groups as the longest possible text. Some
    groups are then empty, but a sum over all groups treats all texts alike.
    """
    lengths = _lengths(sequences)
    inputs = unpadded(sequences, width)
    starts = inputs["starts"]
    counts = lengths - skip
    pooled = np.full(len(lengths), width) if fixed else counts
    group_counts = -(-pooled // POOL_GROUP)
    owners = np.repeat(np.arange(len(sequences)), group_counts)
    # Number of each group within its text.
    first_groups = np.cumsum(group_counts) - group_counts
    number = np.arange(len(owners)) - np.repeat(first_groups, group_counts)
    place = skip[owners, None] + number[:, None] * POOL_GROUP + np.arange(POOL_GROUP)
    return {
        **inputs,
        "pool": np.where(place < lengths[owners, None], starts[owners, None] + place, -1),
        "owners": owners,
        "counts": counts,
    }
