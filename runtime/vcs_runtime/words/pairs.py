"""The words of two texts side by side, as arrays for the arithmetic."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcs_runtime.words import exclusions, lists
from vcs_runtime.words.classes import class_table
from vcs_runtime.words.exclusions import GROUPS_OF_A_WORD, groups_of
from vcs_runtime.words.reading import IntArray, TextWords
from vcs_runtime.words.vectors import FloatArray, WordVectors


@dataclass(frozen=True)
class SideWords:
    """The n content words of one text of a pair.

    Attributes
    ----------
    words
        The words, with chunk, place, class, name and negation.
    stem
        Number of each word's stem, int32 `(n,)`: equal for the same words, in both texts.
    form
        Row of each word's vector in `PairWords.vectors`, int32 `(n,)`.
    """

    words: TextWords
    stem: IntArray
    form: IntArray


@dataclass(frozen=True)
class PairWords:
    """The content words of two texts.

    Attributes
    ----------
    reference
        Words of the reference.
    generated
        Words of the generated text.
    vectors
        Unit vectors of the different forms in both texts, float32 `(forms, width)`.
    groups
        Groups of excluding words that each stem is in, int32 `(stems, 4)`; -1 where there are fewer.
    places
        The stem's place in each of these groups, int32 `(stems, 4)`. Two words exclude each other if they
        are in one group at different places.
    """

    reference: SideWords
    generated: SideWords
    vectors: FloatArray
    groups: IntArray
    places: IntArray


def pair_words(reference: TextWords, generated: TextWords, vectors: WordVectors) -> PairWords:
    """Give the words of two texts one numbering, and add their vectors.

    Parameters
    ----------
    reference
        Words of the reference.
    generated
        Words of the generated text.
    vectors
        Vectors of a bundle.

    Returns
    -------
    PairWords
        The words of both texts.
    """
    stems: dict[str, int] = {}
    forms: dict[str, int] = {}

    def numbered(text: TextWords) -> SideWords:
        own = [stems.setdefault(word.stem, len(stems)) for word in text.lexemes]
        rows = [forms.setdefault(word.form, len(forms)) for word in text.lexemes]
        return SideWords(text, np.array(own, np.int32), np.array(rows, np.int32))

    sides = numbered(reference), numbered(generated)
    groups = np.full((len(stems), GROUPS_OF_A_WORD), -1, np.int32)
    places = np.full((len(stems), GROUPS_OF_A_WORD), -1, np.int32)
    for word_stem, number in stems.items():
        for column, (group, place) in enumerate(groups_of(word_stem, number)):
            groups[number, column], places[number, column] = group, place
    return PairWords(*sides, vectors.of(list(forms)), groups, places)


def words_hash() -> str:
    """Return the sha256 of all that tells words: the lists and the table of classes."""
    rules = [
        sorted(lists.FUNCTION_WORDS),
        sorted(lists.NEGATORS),
        sorted(lists.IRREGULAR.items()),
        sorted(exclusions.members().items()),
    ]
    table: npt.NDArray[np.float16] = class_table()
    return hashlib.sha256(repr(rules).encode() + table.astype("<f2").tobytes()).hexdigest()
