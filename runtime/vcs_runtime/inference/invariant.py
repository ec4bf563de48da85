"""Batches of fixed shapes, so that a GPU computes a vector in the same way whatever else is in its batch.

Kernels are chosen, and sums are split, by the shapes of a run. Here the shapes depend on the length of each
text alone: texts are divided into classes by length, and each run has texts of one class. It has as many rows
and tokens, and is as wide, as every other run of that class. Fillers take the places that texts leave; their
vectors are not used.

A matrix product computes each row by itself, and attention, norms and pooling each text or token by itself.
So the place of a text in its run does not matter either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

RUN_TOKENS = 2048
"""Tokens of a run with texts of at most half as many. One text alone takes such a run, too."""

# Widths of runs without padding, and their rows. With more classes a pair of texts takes more runs, and with
# fewer rows the runs of a job are not full (the script `gpu/invariant_cost` at 07564bf).
_TOKEN_CLASSES = {64: 128, 1024: 12}
_LONG_STEP = 1024  # of the widths of longer texts, each of which has a run of its own
_LEAST_FILLER = 64
_NARROWEST = 16  # of padded runs, whose widths are 16, 24, 32, 48, 64, 96 ...


@dataclass(frozen=True)
class Shape:
    """The shape of all runs with texts of one class."""

    width: int  # most tokens of a text
    rows: int  # texts and fillers
    tokens: int = 0  # of all texts and fillers, in layouts that compute no padding; 0 in padded layouts

    def fits(self, texts: int, tokens: int) -> bool:
        """Whether so many texts with so many tokens fit into one run, and fillers can fill it."""
        fillers = self.rows - texts
        return fillers >= 0 and (not self.tokens or fillers <= self.tokens - tokens <= fillers * self.width)

    def fillers(self, texts: int, tokens: int) -> list[int]:
        """Return the lengths of the fillers beside so many texts with so many tokens."""
        lengths = [1] * (self.rows - texts)
        left = self.tokens - tokens - len(lengths)
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

    Longest texts come first, and in padded layouts equal lengths keep their order. Every text is in one run.
    """
    classes: dict[Shape, list[int]] = {}
    for text in sorted(range(len(lengths)), key=lambda text: -lengths[text]):
        classes.setdefault(shape_of(lengths[text]), []).append(text)
    for shape, texts in classes.items():
        while texts:
            run, texts = _filled(texts, lengths, shape)
            yield run, shape


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
