"""The features of boundary models of the kind "words": how words are written, and where they end."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

IntArray = npt.NDArray[np.int64]

_WORD = re.compile(r"\S+")
SMALL, CAPITAL, CAPITALS = range(3)


def word_features(text: str, encoding: Encoding) -> tuple[IntArray, IntArray]:
    """How the word of each token of `text` is written, and its last character; both int64 `(tokens,)`.

    A word is what stands between white space. It is written SMALL (0: its first letter is small, or it has
    none), with a CAPITAL (1), or all in CAPITALS (2: at least two letters). `text` has at least one word.
    """
    spans = [match.span() for match in _WORD.finditer(text)]
    starts, ends = (np.array(side, np.int64) for side in zip(*spans, strict=True))
    kinds = np.array([_capitals(text[start:end]) for start, end in spans], np.int64)
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    words = np.searchsorted(starts, offsets[:, 0], side="right") - 1
    return kinds[words], ends[words] - 1


def _capitals(word: str) -> int:
    letters = [character for character in word if character.isalpha()]
    if not letters or not letters[0].isupper():
        return SMALL
    return CAPITALS if len(letters) > 1 and all(map(str.isupper, letters)) else CAPITAL
