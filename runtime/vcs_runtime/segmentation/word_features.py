"""The features of boundary models of the kind "words": how words are written, and where they end."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

from vcs_runtime.bundle.layouts import WORD_SHAPES

IntArray = npt.NDArray[np.int64]

_WORD = re.compile(r"\S+")
# How a word is written. In a text without capitals a small letter says nothing; in any other it says that no
# sentence starts there.
CASELESS, CAPITAL, CAPITALS, SMALL = range(WORD_SHAPES)
# A text is taken to have capitals if one word in so many has one: an acronym in lower-cased text is rarer.
_WORDS_A_CAPITAL = 40


def word_features(text: str, encoding: Encoding) -> tuple[IntArray, IntArray]:
    """How the word of each token of `text` is written, and its last character; both int64 `(tokens,)`.

    A word is what stands between white space. It is written with a CAPITAL (1), all in CAPITALS (2: at least
    two letters), or neither: SMALL (3), in a text that hardly has capitals CASELESS (0). `text` has at least
    one word.
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
