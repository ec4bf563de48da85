"""Features for learned segmenters of the kind "words": how words are written, and where they end."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

from vcs_runtime.bundle.layouts import WORD_SHAPES

IntArray = npt.NDArray[np.int64]

_WORD = re.compile(r"\S+")
# How a word is written. A small letter shows that no sentence starts there, except in a text without
# capitals.
CASELESS, CAPITAL, CAPITALS, SMALL = range(WORD_SHAPES)
# A text counts as one with capitals if at least one word in so many has one. Acronyms in lower-cased text are
# rarer.
_WORDS_A_CAPITAL = 40


def word_features(text: str, encoding: Encoding) -> tuple[IntArray, IntArray]:
    """Return how the word of each token is written, and where it ends.

    Words are separated by white space. A word starts with a CAPITAL (1), is written in CAPITALS (2, at least
    two letters), or is SMALL (3). In a text with hardly any capitals, small words are CASELESS (0).
    """
    spans = [match.span() for match in _WORD.finditer(text)]
    starts, ends = (np.array(side, np.int64) for side in zip(*spans, strict=True))
    kinds = np.array([_capitals(text[start:end]) for start, end in spans], np.int64)
    if _WORDS_A_CAPITAL * np.count_nonzero(kinds != SMALL) < len(kinds):
        kinds[kinds == SMALL] = CASELESS
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    words = np.searchsorted(starts, offsets[:, 0], side="right") - 1
    return kinds[words], ends[words] - 1


def _capitals(word: str) -> int:
    letters = [character for character in word if character.isalpha()]
    if not letters or not letters[0].isupper():
        return SMALL
    return CAPITALS if len(letters) > 1 and all(map(str.isupper, letters)) else CAPITAL
