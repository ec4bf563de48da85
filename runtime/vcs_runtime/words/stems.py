"""Stems of English words: what the forms of a word have in common. They are no words, and are never shown."""

from __future__ import annotations

import re

from vcs_runtime.words.lists import IRREGULAR

_VOWEL = re.compile("[aeiouy]")
_SIBILANTS = ("s", "x", "z", "ch", "sh")


def stem(word: str) -> str:
    """Return the stem of a word: two words with one stem count as the same."""
    return _regular(IRREGULAR.get(word, word).replace("'", ""))


def _regular(word: str) -> str:
    if len(word) > 4:
        if word.endswith(("ies", "ied")):
            return word[:-3] + "y"
        for ending in ("ingly", "edly"):
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                return _closed(word[: -len(ending)])
        if word.endswith("ily"):
            return word[:-3] + "y"
        if word.endswith("ly") and len(word) > 5:
            word = word[:-2]
    if len(word) > 3:
        for ending, shortest in (("ing", 6), ("ed", 5)):
            base = word[: -len(ending)]
            if word.endswith(ending) and len(word) >= shortest and _VOWEL.search(base):
                return _closed(base)
        if word.endswith("es") and word[:-2].endswith(_SIBILANTS):
            return word[:-2]
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    return _without_e(word)


def _closed(base: str) -> str:
    """Return what stood before -ing or -ed: one letter of a doubled one, and no final e."""
    doubled = base[-1:] == base[-2:-1]
    if doubled and ((len(base) > 3 and base[-1] not in "lsz") or (len(base) > 4 and base[-1] == "l")):
        return base[:-1]
    return _without_e(base)


def _without_e(word: str) -> str:
    return word.rstrip("e") if len(word) > 3 else word
