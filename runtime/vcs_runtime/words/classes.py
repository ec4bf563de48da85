"""Classes of words: thing, action or quality, by the word and its two neighbours.

Ten features of a word are hashed to rows of a table of three columns. The sums of the columns are logarithms
of the classes' probabilities, up to a constant of each word. models/word-classes.md says how the table was
trained.
"""

from __future__ import annotations

import functools
import zlib
from importlib.resources import files
from typing import Final

import numpy as np
import numpy.typing as npt

from vcs_numba import WORD_CLASSES
from vcs_runtime.errors import BuildError

#: Rows of the table.
ROWS: Final = 1 << 14
#: Number of features of a word, and how many of them are of the word alone.
FEATURES: Final = 10
OWN_FEATURES: Final = 6
#: Names of the classes, in the order of the table's columns.
CLASSES: Final = WORD_CLASSES[:3]
#: Placeholder for a missing neighbour.
NO_NEIGHBOUR: Final = "<"

_TABLE: Final = "data/word-classes.npy"
_REMEMBERED: Final = 1 << 15
_WORDS_AT_ONCE: Final = 4096

FloatArray = npt.NDArray[np.float64]


def word_features(form: str, word_stem: str) -> tuple[int, ...]:
    """Return the OWN_FEATURES of a word, as rows of the table: the word, its stem, its endings, a number."""
    features = (
        "w" + form, "t" + word_stem, "2" + form[-2:], "3" + form[-3:], "4" + form[-4:],
        f"n{form.isdigit()}",
    )  # fmt: skip
    return tuple(map(_row, features))


@functools.lru_cache(_REMEMBERED)
def neighbour_features(before: str, after: str) -> tuple[int, int, int]:
    """Return the features of a word's two neighbours, as rows of the table."""
    return _row("b" + before), _row("a" + after), _row(f"c{before}|{after}")


@functools.lru_cache(_REMEMBERED)
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

    Numbers of half precision are added without any rounding, so that all processors give the same bits.
    """
    table = _exact_table()
    scores = np.empty((len(rows), table.shape[1]), np.float64)
    for start in range(0, len(rows), _WORDS_AT_ONCE):
        part = slice(start, start + _WORDS_AT_ONCE)
        scores[part] = table[rows[part]].sum(axis=1)
    return scores
