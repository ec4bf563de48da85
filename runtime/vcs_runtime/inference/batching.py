"""Cutting token sequences into batches, and laying a batch out as a graph wants it.

A sequence meets the same shapes, hence the same arithmetic, whatever else is in its batch: it is padded to a
length that depends on itself alone (its own length, rounded up), and a batch holds only sequences of one
padded length. Since the rounding step is small, hardly any padding is computed; a packed graph computes none.

On a GPU, where the number of rows alone makes the library choose other kernels, a batch mixes lengths: there
a vector depends on its batch within rounding, and not at all on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.layouts import PADDING_STEP, padded_length

IntArray = npt.NDArray[np.int64]
Inputs = dict[str, IntArray]

# Tokens of one run. On a CPU larger batches bring nothing but memory (`benchmarks/end_to_end.py`).
TOKEN_BUDGET = {"ort-cpu": 2048, "ort-cuda": 16384, "ort-tensorrt": 32768}
# Where lengths are mixed: places of a packed batch, padding included, for each token of the budget; and of a
# padded batch for each of its tokens, unless it is so small that a GPU takes the same time for less.
_PLACES = 2
_PADDING = 1.25
_SMALL = 2048


RowLimit = Callable[[int], float]
"""The most rows that a batch may have at a padded length."""


def _no_limit(length: int) -> float:
    return math.inf


@dataclass(frozen=True)
class Batch:
    """One run of the model: `rows` says which sequences; `inputs` are int64 arrays by the graph's names."""

    rows: list[int]
    inputs: Inputs


def groups(
    lengths: Sequence[int], token_budget: int, step: int = PADDING_STEP, most_rows: RowLimit = _no_limit
) -> Iterator[tuple[list[int], int]]:
    """Group sequences by length into batches `(rows, padded length)` of at most `token_budget` padded tokens,
    and, at each padded length, at most `most_rows` rows.

    Longest first, equal lengths in their order. A sequence longer than the budget makes a batch of its own.
    Every row is in exactly one batch.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        length = padded_length(lengths[order[start]], step)
        most = most_rows(length)
        stop = start + 1
        while (
            stop < len(order)
            and (stop - start + 1) * length <= token_budget
            and stop - start < most
            and padded_length(lengths[order[stop]], step) == length
        ):
            stop += 1
        yield order[start:stop], length
        start = stop


def mixed_groups(
    lengths: Sequence[int], token_budget: int, packed: bool, most_rows: RowLimit = _no_limit
) -> Iterator[tuple[list[int], int]]:
    """As `groups`, of sequences of any lengths, padded to the longest in their batch.

    packed  padding costs little: `token_budget` real tokens, and twice as many padded ones
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        width = tokens = max(1, lengths[order[start]])
        most = most_rows(width)
        stop = start + 1
        while stop < len(order) and stop - start < most:
            more = tokens + lengths[order[stop]]
            places = (stop - start + 1) * width
            if packed:
                fits = more <= token_budget and places <= _PLACES * token_budget
            else:
                fits = places <= token_budget and places <= max(_SMALL, _PADDING * more)
            if not fits:
                break
            tokens = more
            stop += 1
        yield order[start:stop], width
        start = stop


def batches(
    sequences: Sequence[Sequence[int]],
    token_budget: int,
    layout: str = "padded",
    skip: int = 0,
    *,
    mixed: bool = False,
    most_rows: RowLimit = _no_limit,
) -> Iterator[Batch]:
    """Cut `sequences` of token ids into batches in a layout of `EmbedderSpec`.

    skip   how many first tokens of each sequence the graph leaves out of its mean; less than any length
    mixed  sequences of several lengths share a batch (`mixed_groups`)
    """
    lengths = [len(sequence) for sequence in sequences]
    if mixed:
        found = mixed_groups(lengths, token_budget, layout == "packed", most_rows)
    else:
        found = groups(lengths, token_budget, 1 if layout == "packed" else PADDING_STEP, most_rows)
    lay_out = _LAYOUTS[layout]
    for rows, width in found:
        yield Batch(rows, lay_out([sequences[row] for row in rows], width, skip))


def _padded(sequences: list[Sequence[int]], width: int, skip: int) -> Inputs:
    """`input_ids` and `attention_mask`, `(batch, width)`."""
    ids = np.zeros((len(sequences), width), np.int64)  # id 0 under the mask: any would do
    mask = np.zeros((len(sequences), width), np.int64)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)] = sequence
        mask[i, : len(sequence)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def _masked(sequences: list[Sequence[int]], width: int, skip: int) -> Inputs:
    """Beside the padded inputs `pool_mask` `(batch, width)`: the attention mask without the first `skip`."""
    inputs = _padded(sequences, width, skip)
    pool = inputs["attention_mask"].copy()
    pool[:, :skip] = 0
    return {**inputs, "pool_mask": pool}


def _packed(sequences: list[Sequence[int]], width: int, skip: int) -> Inputs:
    """All tokens one after the other, and the way to places `(batch, width)` and back."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    places = np.arange(width)
    filled = places < lengths[:, None]
    first = np.cumsum(lengths) - lengths
    return {
        "input_ids": np.concatenate([np.asarray(sequence, np.int64) for sequence in sequences]),
        "gather": np.where(filled, first[:, None] + places, 0),
        "scatter": np.flatnonzero(filled),
        "lengths": lengths,
        "skip": np.full(len(sequences), skip, np.int64),
    }


_LAYOUTS: dict[str, Callable[[list[Sequence[int]], int, int], Inputs]] = {
    "padded": _padded,
    "packed": _packed,
    "masked": _masked,
}
