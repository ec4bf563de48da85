"""From a model's logits to the segments of a text: windows, merging, probabilities, cuts.

Pure functions in the order in which `sat` uses them. Precisions and rounding are those of wtpsplit, whose
thresholds were tuned with them: a probability is the same number here and there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


def window_starts(tokens: int, size: int, stride: int) -> range | list[int]:
    """Where the windows of a text of `tokens` tokens start; each is `size` long, or the whole shorter text.

    They start `stride` apart; the last is moved back to end with the text. A text without tokens has none.
    """
    if tokens <= size:
        return range(min(tokens, 1))
    return [*range(0, tokens - size, stride), tokens - size]


class Overlap:
    """The mean logit of each token of a text over the windows that hold it, kept in half precision.

    Windows must be added in order: half-precision sums depend on it. Memory: four bytes a token.
    """

    def __init__(self, tokens: int) -> None:
        self._sums = np.zeros(tokens, np.float16)
        self._counts = np.zeros(tokens, np.float16)

    def add(self, start: int, logits: npt.NDArray[Any]) -> None:
        """Add the logits `(tokens of the window,)`, float16 or float32, of the window at `start`."""
        part = slice(start, start + len(logits))
        # A float32 logit is added in float32 and the sum rounded; it is not rounded first.
        np.add(self._sums[part], logits, out=self._sums[part], casting="same_kind")
        self._counts[part] += np.float16(1)

    def mean(self) -> npt.NDArray[np.float16]:
        """One logit a token. Every token must have been in a window."""
        return self._sums / self._counts


def sigmoid(logits: npt.NDArray[Any]) -> FloatArray:
    """Probabilities in float32, whatever the precision of the logits."""
    with np.errstate(over="ignore"):  # exp(100) is infinity in float32, and the probability 0: right
        return np.float32(1) / (np.float32(1) + np.exp(-logits.astype(np.float32)))


def character_probabilities(length: int, places: IntArray, probabilities: FloatArray) -> FloatArray:
    """Spread probabilities of tokens over a text: float32 `(length,)`.

    `places` names the character that gets each token's probability: of several tokens on one character the
    last counts. A token with the place -1 has none; a character without token gets 0.
    """
    result = np.zeros(length, np.float32)
    cutting = places >= 0
    result[places[cutting]] = probabilities[cutting]
    return result


def cut(text: str, ends: Iterable[int]) -> list[str]:
    """Cut behind the characters `ends` (ascending) and the white space after them; newlines always cut.

    White space stays with the segment before it, but the newlines at which a text is cut are in no segment:
    empty lines give empty segments, as `str.split` does.
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
    # A newline that ends a segment has done its work already; only the last segment keeps its own.
    lines = [piece.removesuffix("\n") for piece in pieces[:-1]] + pieces[-1:]
    return [line for piece in lines for line in piece.split("\n")]
