"""The content words of a text, chunk by chunk, with their places, classes, names and negations."""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.words.classes import (
    FEATURES,
    NO_NEIGHBOUR,
    class_scores,
    ending_feature,
    neighbour_features,
    word_features,
)
from vcs_runtime.words.english import FUNCTION_WORDS, NEGATORS, stem
from vcs_runtime.words.exclusions import exclusion_code

# Latin letters and digits, with a part after an apostrophe ("Sam's", "don't", "o’clock").
_WORD: Final = re.compile(r"[0-9A-Za-zÀ-ÖØ-öø-ɏ]+(?:['’][A-Za-z]+)?")
# A negator reaches the first content word among so many words after it.
_REACH: Final = 3
#: Number of words whose properties are remembered.
_REMEMBERED: Final = 1 << 15

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Lexeme:
    """Properties that follow from a word's spelling."""

    form: str  # in small letters, without a possessive ending
    stem: str
    exclusion: int  # row of `excluding_table`
    is_content: bool
    negates: bool  # the next content word
    is_capital: bool
    ending: str
    seen_as: str  # form used as a neighbour feature: a function word as it is, any other by its ending
    features: tuple[int, ...]


@functools.lru_cache(_REMEMBERED)
def lexeme(word: str) -> Lexeme:
    """Return the properties of a word: a run of Latin letters and digits, as it stands in a text."""
    small = word.lower().replace("’", "'")
    form = small.removesuffix("'s")
    negated_verb = small.endswith("n't")
    is_content = not (small in FUNCTION_WORDS or form in FUNCTION_WORDS or negated_verb)
    word_stem = stem(form)
    return Lexeme(
        form=form, stem=word_stem, exclusion=exclusion_code(word_stem), is_content=is_content,
        negates=negated_verb or small in NEGATORS, is_capital=word[0].isupper(), ending=form[-2:],
        seen_as="s" + form[-2:] if is_content else "p" + form,
        features=word_features(form, word_stem) if is_content else (),
    )  # fmt: skip


@dataclass(frozen=True)
class TextWords:
    """The n content words of a text, in order."""

    lexemes: list[Lexeme]
    chunk: IntArray  # number of the chunk, ascending
    start: IntArray  # `chunks[chunk][start:stop]` is the word
    stop: IntArray
    features: npt.NDArray[np.uint16]  # (n, FEATURES), rows of the table of classes
    is_name: BoolArray
    is_negated: BoolArray

    @functools.cached_property
    def class_scores(self) -> npt.NDArray[np.float64]:
        """Logarithms of the probabilities of thing, action and quality, float64 `(n, 3)`.

        They are so up to a constant of each word. The largest is the word's class, unless it is a name.
        """
        return class_scores(self.features)

    def __len__(self) -> int:
        return len(self.lexemes)


def read_words(chunks: Sequence[str]) -> TextWords:
    """Find the content words of a text.

    A word is a name if it begins with a capital letter, does so somewhere inside a chunk, and stands nowhere
    in the text in small letters. A text without words in small letters has no names.
    """
    found = _Found()
    for number, chunk in enumerate(chunks):
        found.add(number, chunk)
    names = found.capital_inside - found.small if found.small else frozenset()
    return TextWords(
        lexemes=found.lexemes,
        chunk=np.array(found.chunk, np.int32),
        start=np.array(found.start, np.int32),
        stop=np.array(found.stop, np.int32),
        features=np.frombuffer(found.features, np.uint16).reshape(-1, FEATURES),
        is_name=np.array([word.is_capital and word.form in names for word in found.lexemes], np.bool_),
        is_negated=np.array(found.negated, np.bool_),
    )


@dataclass
class _Found:
    """Content words of the chunks so far."""

    lexemes: list[Lexeme] = field(default_factory=list)
    chunk: array[int] = field(default_factory=lambda: array("i"))
    start: array[int] = field(default_factory=lambda: array("i"))
    stop: array[int] = field(default_factory=lambda: array("i"))
    negated: bytearray = field(default_factory=bytearray)
    features: array[int] = field(default_factory=lambda: array("H"))
    capital_inside: set[str] = field(default_factory=set)
    small: set[str] = field(default_factory=set)

    def add(self, number: int, chunk: str) -> None:
        """Add the content words of a chunk."""
        places = [match.span() for match in _WORD.finditer(chunk)]
        words = [lexeme(chunk[start:stop]) for start, stop in places]
        before, reach, last = NO_NEIGHBOUR, 0, len(words) - 1
        for at, word in enumerate(words):
            if not word.is_capital:
                self.small.add(word.form)
            elif at:
                self.capital_inside.add(word.form)
            if word.is_content:
                after = words[at + 1].seen_as if at < last else NO_NEIGHBOUR
                self.lexemes.append(word)
                self.chunk.append(number)
                self.start.append(places[at][0])
                self.stop.append(places[at][1])
                self.negated.append(reach > 0)
                self.features.extend(word.features)
                self.features.extend(neighbour_features(before, after))
                self.features.append(ending_feature(before, word.ending))
                reach = 0
            else:
                reach -= 1
            if word.negates:
                reach = _REACH
            before = word.seen_as
