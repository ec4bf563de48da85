"""Stems and lists of English words for substitution, from `data/english.toml`.

A stem is the common part of a word's forms. It is not a word, and never shown. The words in a line
of `EXCLUSIONS` have similar vectors ("left" and "right"), because they occur in the same contexts.
So a list must state that they exclude each other. Two different words that begin with a digit
exclude each other as well.
"""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from importlib.resources import files
from typing import Final

import numpy as np
import numpy.typing as npt

_LISTS: Final = tomllib.loads(files("vcs_runtime").joinpath("data/english.toml").read_text("utf-8"))
FUNCTION_WORDS: Final = frozenset(_LISTS["function_words"].split())
NEGATORS: Final = frozenset(_LISTS["negators"].split())


def _irregular_forms() -> dict[str, str]:
    bases = {}
    for entry in _LISTS["irregular"].replace("\n", ";").split(";"):
        if entry:
            base, *forms = entry.split()
            bases.update(dict.fromkeys(forms, base))
    return bases


IRREGULAR: Final = _irregular_forms()
"""The base of each irregular form."""
EXCLUSIONS: Final[list[str]] = _LISTS["exclusions"].splitlines()
"""Lines of words that exclude each other, with the spellings of one word as "gray/grey"."""

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
    """Return the part before -ing or -ed without a final e, and without a doubled letter."""
    if base[-1:] == base[-2:-1]:
        # "stopped" from "stop", but "missed" from "miss"; "ll" only in longer words.
        if len(base) > 3 and base[-1] not in "lsz":
            return base[:-1]
        if len(base) > 4 and base[-1] == "l":
            return base[:-1]
    return _without_e(base)


def _without_e(word: str) -> str:
    return word.rstrip("e") if len(word) > 3 else word


#: The codes of words in no list, and of words that begin with a digit.
_NONE = 0
_DIGITS = 1


@functools.cache
def exclusion_codes() -> dict[str, int]:
    """Return the code of each stem that a list holds: its row of `excluding_table`."""
    stems: set[str] = set()
    for group in _groups():
        stems.update(*group)
    return {word: code for code, word in enumerate(sorted(stems), _DIGITS + 1)}


def exclusion_code(word_stem: str) -> int:
    """Return the row of a stem in `excluding_table`; 0 for a stem that excludes nothing."""
    return _DIGITS if word_stem[:1].isdigit() else exclusion_codes().get(word_stem, _NONE)


@functools.cache
def excluding_table() -> npt.NDArray[np.bool_]:
    """Return which codes exclude each other, bool `(codes, codes)`.

    Two codes do if they stand at different places of a line. All words that begin with a digit have
    one code, which excludes itself. Equal stems do not exclude each other.
    """
    codes = exclusion_codes()
    table = np.zeros((len(codes) + 2, len(codes) + 2), np.bool_)
    table[_DIGITS, _DIGITS] = True
    for group in _groups():
        for place, other in itertools.permutations(group, 2):
            for first, second in itertools.product(place, other):
                table[codes[first], codes[second]] = first != second
    table.flags.writeable = False
    return table


@functools.cache
def _groups() -> tuple[tuple[frozenset[str], ...], ...]:
    """Return the lines of the lists: the stems at each place."""
    return tuple(tuple(map(_stems_at, line.split())) for line in EXCLUSIONS)


def _stems_at(place: str) -> frozenset[str]:
    """Return the stems of the spellings at a place of a line, without function words."""
    return frozenset(stem(word) for word in place.split("/") if word not in FUNCTION_WORDS)
