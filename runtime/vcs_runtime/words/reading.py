"""The content words of a text, chunk by chunk, with their places, classes, names and negations.

A word's class is thing, action or quality, by the word and its two neighbours. Ten features of the
word are hashed to rows of a table of three columns. The sums of the rows are logarithms of the
classes' probabilities, up to a constant of each word (models/word-classes.md).
"""

from __future__ import annotations

import functools
import hashlib
import re
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from importlib.resources import files
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from vcs_numba import WORD_CLASSES, Vocabulary, Words
from vcs_numba.substitution_inputs import DEFAULT_SUBSTITUTION
from vcs_runtime.errors import BuildError
from vcs_runtime.words import english
from vcs_runtime.words.english import (
    FUNCTION_WORDS,
    NEGATORS,
    excluding_table,
    exclusion_code,
    exclusion_codes,
    stem,
)
from vcs_runtime.words.vectors import WordVectors

#: Rows of the table.
ROWS: Final = 1 << 14
#: Number of all features of a word.
FEATURES: Final = 10
#: Names of the classes, in the order of the table's columns.
CLASSES: Final = WORD_CLASSES[:3]
#: Placeholder for a missing neighbour.
NO_NEIGHBOUR: Final = "<"

_TABLE: Final = "data/word-classes.npy"
_REMEMBERED: Final = 1 << 15  # words, and pairs of neighbours
_LONGEST: Final = 100  # letters of what is remembered
_WORDS_AT_ONCE: Final = 4096

FloatArray = npt.NDArray[np.float64]
T = TypeVar("T")


def _remembered(properties: Callable[..., T]) -> Callable[..., T]:
    """Remember properties of short words: a text may hold words of any length."""
    cached = functools.lru_cache(_REMEMBERED)(properties)

    @functools.wraps(properties)
    def look_up(*words: str) -> T:
        if sum(map(len, words)) > _LONGEST:
            return properties(*words)
        return cached(*words)

    return look_up


def word_features(form: str, word_stem: str) -> tuple[int, ...]:
    """Return the features of a word alone: rows for the word, its stem, endings and a number."""
    features = (
        "w" + form,
        "t" + word_stem,
        "2" + form[-2:],
        "3" + form[-3:],
        "4" + form[-4:],
        f"n{form.isdigit()}",
    )
    return tuple(map(_row, features))


@_remembered
def neighbour_features(before: str, after: str) -> tuple[int, int, int]:
    """Return the features of a word's two neighbours, as rows of the table."""
    return _row("b" + before), _row("a" + after), _row(f"c{before}|{after}")


@_remembered
def ending_feature(before: str, ending: str) -> int:
    """Return the feature of a word's ending together with the neighbour before it."""
    return _row(f"e{before}|{ending}")


def _row(feature: str) -> int:
    return zlib.crc32(feature.encode()) % ROWS


@functools.cache
def class_table() -> npt.NDArray[np.float16]:
    """Return the table, float16 `(ROWS, 3)`; raises BuildError if the installation lacks it."""
    try:
        with files("vcs_runtime").joinpath(_TABLE).open("rb") as file:
            table: npt.NDArray[np.float16] = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise BuildError(f"vcs_runtime/{_TABLE}: cannot be read: {error}") from None
    if table.shape != (ROWS, len(CLASSES)) or table.dtype != np.float16:
        raise BuildError(f"vcs_runtime/{_TABLE}: is not the table of word classes")
    return table


@functools.cache
def _exact_table() -> FloatArray:
    return class_table().astype(np.float64)


def class_scores(rows: npt.NDArray[np.uint16]) -> FloatArray:
    """Add up features (words, FEATURES): logarithms of probabilities (words, 3), up to a constant.

    Numbers of half precision are added without any rounding, so that all processors give the same
    bits.
    """
    table = _exact_table()
    scores = np.empty((len(rows), table.shape[1]), np.float64)
    for start in range(0, len(rows), _WORDS_AT_ONCE):
        part = slice(start, start + _WORDS_AT_ONCE)
        scores[part] = table[rows[part]].sum(axis=1)
    return scores


# Latin letters and digits, with a part after an apostrophe ("Sam's", "don't", "o’clock").
_WORD: Final = re.compile(r"[0-9A-Za-zÀ-ÖØ-öø-ɏ]+(?:['’][A-Za-z]+)?")
# A negator reaches the first content word among so many words after it.
_REACH: Final = 3

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
    # Form used as a neighbour feature: a function word as it is, any other by its ending.
    seen_as: str
    features: tuple[int, ...]


@_remembered
def lexeme(word: str) -> Lexeme:
    """Return the properties of a word: a run of Latin letters and digits, as in the text."""
    small = word.lower().replace("’", "'")
    form = small.removesuffix("'s")
    negated_verb = small.endswith("n't")
    is_content = not (small in FUNCTION_WORDS or form in FUNCTION_WORDS or negated_verb)
    word_stem = stem(form)
    return Lexeme(
        form=form,
        stem=word_stem,
        exclusion=exclusion_code(word_stem),
        is_content=is_content,
        negates=negated_verb or small in NEGATORS,
        is_capital=word[0].isupper(),
        ending=form[-2:],
        seen_as="s" + form[-2:] if is_content else "p" + form,
        features=word_features(form, word_stem) if is_content else (),
    )


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

        They lack a constant of each word. The largest one is the word's class, unless it is a name.
        """
        return class_scores(self.features)

    def __len__(self) -> int:
        return len(self.lexemes)


def read_words(chunks: Sequence[str]) -> TextWords:
    """Find the content words of a text.

    A word is a name if it begins with a capital letter, does so somewhere inside a chunk, and
    stands nowhere in the text in small letters. A text without words in small letters has no names.
    """
    words = _ContentWords()
    for number, chunk in enumerate(chunks):
        words.add(number, chunk)
    names = words.capital_inside - words.small if words.small else set()
    is_name = [word.is_capital and word.form in names for word in words.lexemes]
    return TextWords(
        lexemes=words.lexemes,
        chunk=np.array(words.chunk, np.int32),
        start=np.array(words.start, np.int32),
        stop=np.array(words.stop, np.int32),
        features=np.frombuffer(words.features, np.uint16).reshape(-1, FEATURES),
        is_name=np.array(is_name, np.bool_),
        is_negated=np.array(words.negated, np.bool_),
    )


@dataclass
class _ContentWords:
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
        before = NO_NEIGHBOUR
        reach = 0
        for i, word in enumerate(words):
            if not word.is_capital:
                self.small.add(word.form)
            elif i > 0:
                self.capital_inside.add(word.form)
            if word.is_content:
                after = words[i + 1].seen_as if i + 1 < len(words) else NO_NEIGHBOUR
                start, stop = places[i]
                self.lexemes.append(word)
                self.chunk.append(number)
                self.start.append(start)
                self.stop.append(stop)
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


# Version of the rules in the code: finding words, names and negations, and the formulas of
# substitution and strict scores.
_RULES: Final = 2


class Numbering:
    """Numbers of the stems and forms of texts that are compared with each other."""

    def __init__(self) -> None:
        self._stems: dict[str, int] = {}
        self._forms: dict[str, int] = {}

    def words(self, text: TextWords) -> Words:
        """Return the words of a text as numbers; all texts of one numbering share them."""
        stems = []
        forms = []
        exclusions = []
        for word in text.lexemes:
            stems.append(self._stems.setdefault(word.stem, len(self._stems)))
            forms.append(self._forms.setdefault(word.form, len(self._forms)))
            exclusions.append(word.exclusion)
        return Words(
            stem=np.array(stems, np.int32),
            vector=np.array(forms, np.int32),
            chunk=text.chunk,
            log_class=text.class_scores,
            name=text.is_name,
            negated=text.is_negated,
            exclusion=np.array(exclusions, np.int32),
        )

    def vocabulary(self, vectors: WordVectors) -> Vocabulary:
        """Return the vectors of all forms so far, and the words that exclude each other."""
        return Vocabulary(vectors.of(list(self._forms)), excluding_table())


def words_hash() -> str:
    """Return the sha256 of rules, lists, classes and constants, on which the comparison depends."""
    rules = [
        _RULES,
        sorted(english.FUNCTION_WORDS),
        sorted(english.NEGATORS),
        sorted(english.IRREGULAR.items()),
        sorted(exclusion_codes().items()),
        np.argwhere(excluding_table()).tolist(),
        astuple(DEFAULT_SUBSTITUTION),
    ]
    table: npt.NDArray[np.float16] = class_table()
    return hashlib.sha256(repr(rules).encode() + table.astype("<f2").tobytes()).hexdigest()
