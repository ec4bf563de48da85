"""From a model's logits to the segments of a text: windows, averages, probabilities, cuts.

Pure functions in the order in which `boundary_model` uses them. Precisions and rounding are those of
wtpsplit, because its thresholds were tuned with them: both compute the same probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


def window_starts(tokens: int, size: int, stride: int) -> range | list[int]:
    """Return where the windows over a text start.

    Windows start `stride` tokens apart. The last one is moved back to end with the text. A text of at most
    `size` tokens is one window, a text without tokens none.
    """
    if tokens <= size:
        return range(min(tokens, 1))
    return [*range(0, tokens - size, stride), tokens - size]


class Overlap:
    """The mean logit of each token of a text over all windows that hold it, in half precision.

    Windows must be added in order, because sums in half precision depend on it. A token takes four bytes.
    """

    def __init__(self, tokens: int) -> None:
        self._sums = np.zeros(tokens, np.float16)
        self._counts = np.zeros(tokens, np.float16)

    def add(self, start: int, logits: npt.NDArray[Any]) -> None:
        """Add the logits of the window at `start`: (tokens of the window,), float16 or float32."""
        part = slice(start, start + len(logits))
        # A float32 logit is added in float32 and only the sum is rounded.
        np.add(self._sums[part], logits, out=self._sums[part], casting="same_kind")
        self._counts[part] += np.float16(1)

    def mean(self) -> npt.NDArray[np.float16]:
        """Return one logit for each token. Every token must have been in a window."""
        return self._sums / self._counts


def sigmoid(logits: npt.NDArray[Any]) -> FloatArray:
    """Return probabilities in float32, whatever the precision of the logits."""
    with np.errstate(over="ignore"):  # exp(100) is infinity in float32, which gives the right probability 0
        return np.float32(1) / (np.float32(1) + np.exp(-logits.astype(np.float32)))


def character_probabilities(length: int, places: IntArray, probabilities: FloatArray) -> FloatArray:
    """Assign the probabilities of tokens to the characters of a text; a character without token has 0.

    `places` has the character of each token, or -1. Of several tokens of one character the last one counts.
    """
    result = np.zeros(length, np.float32)
    placed = places >= 0
    result[places[placed]] = probabilities[placed]
    return result


def cut(text: str, ends: Iterable[int]) -> list[str]:
    """Cut a text after certain characters and the white space that follows them, and at every newline.

    White space belongs to the segment before it. Only the newlines at which the text is cut are in no
    segment, so empty lines give empty segments, as `str.split` does.
    """
    pieces: list[str] = []
    start = 0
    for end in ends:
        stop = end + 1
        while stop < len(text) and text[stop].isspace():
            stop += 1
        if stop > start:
            pieces.append(text[start:stop])
            start = stop
    if start < len(text):
        pieces.append(text[start:])
    # A newline at the end of a segment is already the cut after it; only the last segment keeps its newline.
    lines = [piece.removesuffix("\n") for piece in pieces[:-1]] + pieces[-1:]
    return [line for piece in lines for line in piece.split("\n")]
