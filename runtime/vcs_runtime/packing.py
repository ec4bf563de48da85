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


@dataclass(frozen=True)
class Batch:
    """One run of the model: `rows` says which sequences, `ids` and `mask` are int64 `(len(rows), tokens)`."""

    rows: list[int]
    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.int64]


def padded_length(tokens: int) -> int:
    """The length to which a sequence of `tokens` tokens is padded."""
    return max(1, -(-tokens // STEP)) * STEP


def batches(sequences: Sequence[Sequence[int]], token_budget: int) -> Iterator[Batch]:
    """Cut `sequences` of token ids into batches of at most `token_budget` padded tokens, longest first.

    A sequence longer than the budget makes a batch of its own. Every sequence is in exactly one batch.
    """
    order = sorted(range(len(sequences)), key=lambda row: -len(sequences[row]))
    start = 0
    while start < len(order):
        length = padded_length(len(sequences[order[start]]))
        stop = start + 1
        while (
            stop < len(order)
            and (stop - start + 1) * length <= token_budget
            and padded_length(len(sequences[order[stop]])) == length
        ):
            stop += 1
        rows = order[start:stop]
        ids = np.zeros((len(rows), length), np.int64)  # id 0 under the mask: any would do
        mask = np.zeros((len(rows), length), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(sequences[row])] = sequences[row]
            mask[i, : len(sequences[row])] = 1
        yield Batch(rows, ids, mask)
        start = stop
