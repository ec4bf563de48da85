"""Cutting token sequences into batches.

A text is padded to a length that depends on the text alone (its own length, rounded up), and a batch holds
only texts of one padded length. So a text meets the same shapes, hence the same arithmetic, whatever else is
in its batch; and since the rounding step is small, hardly any padding is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

STEP = 4
# Padded tokens of one run. On a CPU larger batches bring nothing but memory (`benchmarks/end_to_end.py`).
TOKEN_BUDGET = {"ort-cpu": 2048, "ort-cuda": 16384}


@dataclass(frozen=True)
class Batch:
    """One run of the model: `rows` says which sequences, `ids` and `mask` are int64 `(len(rows), tokens)`."""

    rows: list[int]
    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.int64]


def padded_length(tokens: int, step: int = STEP) -> int:
    """The length to which a sequence of `tokens` tokens is padded: the next multiple of `step`."""
    return max(1, -(-tokens // step)) * step


def groups(lengths: Sequence[int], token_budget: int, step: int = STEP) -> Iterator[tuple[list[int], int]]:
    """Group sequences by length into batches `(rows, padded length)` of at most `token_budget` padded tokens.

    Longest first, equal lengths in their order. A sequence longer than the budget makes a batch of its own.
    Every row is in exactly one batch.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        length = padded_length(lengths[order[start]], step)
        stop = start + 1
        while (
            stop < len(order)
            and (stop - start + 1) * length <= token_budget
            and padded_length(lengths[order[stop]], step) == length
        ):
            stop += 1
        yield order[start:stop], length
        start = stop


def batches(sequences: Sequence[Sequence[int]], token_budget: int) -> Iterator[Batch]:
    """Cut `sequences` of token ids into batches, as `groups` forms them."""
    for rows, length in groups([len(sequence) for sequence in sequences], token_budget):
        ids = np.zeros((len(rows), length), np.int64)  # id 0 under the mask: any would do
        mask = np.zeros((len(rows), length), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(sequences[row])] = sequences[row]
            mask[i, : len(sequences[row])] = 1
        yield Batch(rows, ids, mask)
