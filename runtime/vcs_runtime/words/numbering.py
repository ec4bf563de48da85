"""The words of several texts under one numbering, as the arithmetic takes them."""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from typing import Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Vocabulary, Words
from vcs_numba.substitution_inputs import DEFAULT_SUBSTITUTION
from vcs_runtime.words import english
from vcs_runtime.words.classes import class_table
from vcs_runtime.words.exclusions import excluding_table, exclusion_codes
from vcs_runtime.words.reading import TextWords
from vcs_runtime.words.vectors import WordVectors

# Raised when the rules change that stand in the code: how words are found, and what is a name or negated.
_RULES: Final = 1


class Numbering:
    """Numbers the stems and the forms of texts that are compared with each other."""

    def __init__(self) -> None:
        self._stems: dict[str, int] = {}
        self._forms: dict[str, int] = {}

    def words(self, text: TextWords) -> Words:
        """Return the words of a text as numbers; all texts of one numbering share them."""
        stems, forms = self._stems, self._forms
        lexemes = text.lexemes
        return Words(
            stem=np.array([stems.setdefault(word.stem, len(stems)) for word in lexemes], np.int32),
            vector=np.array([forms.setdefault(word.form, len(forms)) for word in lexemes], np.int32),
            chunk=text.chunk, log_class=text.class_scores, name=text.is_name, negated=text.is_negated,
            exclusion=np.array([word.exclusion for word in lexemes], np.int32),
        )  # fmt: skip

    def vocabulary(self, vectors: WordVectors) -> Vocabulary:
        """Return the vectors of all forms so far, and the words that exclude each other."""
        return Vocabulary(vectors.of(list(self._forms)), excluding_table())


def words_hash() -> str:
    """Return the sha256 of all that the comparison depends on: rules, lists, table of classes, constants."""
    rules = [
        _RULES, sorted(english.FUNCTION_WORDS), sorted(english.NEGATORS), sorted(english.IRREGULAR.items()),
        sorted(exclusion_codes().items()), np.argwhere(excluding_table()).tolist(),
        astuple(DEFAULT_SUBSTITUTION),
    ]  # fmt: skip
    table: npt.NDArray[np.float16] = class_table()
    return hashlib.sha256(repr(rules).encode() + table.astype("<f2").tobytes()).hexdigest()
