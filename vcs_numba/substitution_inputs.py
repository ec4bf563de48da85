"""Arguments of `substitution`: words of a text as numbers, vocabulary, and constants."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import FLOAT32, as_float_array, check_number, readable
from vcs_numba.kernels.counterparts import NAME, Bools, Ids, Vectors
from vcs_numba.kernels.matching import Floats

#: The classes of words, by code.
WORD_CLASSES: Final = ("thing", "action", "quality", "name")

#: Rounding to float32, or to half precision before, moves the length of a unit vector by less.
_LENGTH_TOLERANCE: Final = 1e-3


@dataclass(frozen=True)
class SubstitutionParams:
    """The constants of `substitution` and `strict` (docs/reference/vcs.md, section 15).

    Parameters
    ----------
    low, high
        Similarity up to which a word lacks a counterpart, and from which it has one; -1 <= low <
        high <= 1.
    found_reach
        Number of chunks on each side of a match in which a word's counterpart may be, at least 0.
    pair_reach
        Number of chunks on each side of a match in which a word's replacement may be, and the
        counterpart of a word that excludes others; at least 0, at most `found_reach`.
    context_weight
        Part in [0, 1] of a pair's weight that depends on the neighbouring words.
    context_certainty
        Agreement of the next neighbours, in [0, 1], from which words of different classes may
        replace each other.
    least_mass
        Minimum number of words by which a class's replaced words are divided, above 0.
    thing_weight
        Factor of the share of things, at least 0.
    rewording
        Factor of the share of words that have only a similar counterpart, at least 0.
    allowance
        Substitution in [0, 1] up to which no score is lowered.
    slope
        How much the cap of a score falls per unit of substitution above the allowance, at least 0.

    Raises
    ------
    ValueError
        A value is out of range, NaN, infinite, a bool or not a number. The message names the field.
    """

    low: float = 0.25
    high: float = 0.55
    found_reach: float = 1.0
    pair_reach: float = 0.0
    context_weight: float = 0.65
    context_certainty: float = 0.75
    least_mass: float = 8.0
    thing_weight: float = 1.3
    rewording: float = 4.0
    allowance: float = 0.25
    slope: float = 6.0

    def __post_init__(self) -> None:
        check_number(self, "low", low=-1.0, high=1.0)
        check_number(self, "high", low=-1.0, high=1.0)
        for name in ("context_weight", "context_certainty", "allowance"):
            check_number(self, name, low=0.0, high=1.0)
        for name in ("found_reach", "pair_reach", "thing_weight", "rewording", "slope"):
            check_number(self, name, low=0.0)
        check_number(self, "least_mass", low=0.0, low_is_open=True)
        if self.low >= self.high:
            raise ValueError(f"high must be greater than low ({self.low!r}), not {self.high!r}")
        if self.pair_reach > self.found_reach:
            raise ValueError(f"pair_reach must be at most found_reach, not {self.pair_reach!r}")

    @cached_property
    def packed(self) -> npt.NDArray[np.float64]:
        """The constants as the kernel reads them: float64 (9,), computed once for each value."""
        return np.array([getattr(self, field.name) for field in fields(self)[:9]], dtype=np.float64)


DEFAULT_SUBSTITUTION: Final = SubstitutionParams()


@dataclass(frozen=True, eq=False)
class Words:
    """The content words of one text, in their order; a text may have none.

    Parameters
    ----------
    stem
        int32 (n,), at least 0: equal for words that are the same. Both texts use the same ids.
    vector
        int32 (n,), at least 0: each word's row of `Vocabulary.vectors`.
    chunk
        int32 (n,), at least 0, ascending: the chunk of each word.
    log_class
        (n, 3): log probabilities of the first three of `WORD_CLASSES`; a constant that is added to
        a row changes nothing.
    name
        bool (n,): whether a word is a name, which overrules `log_class`.
    negated
        bool (n,): whether a word is negated.
    exclusion
        int32 (n,), at least 0: each word's row of `Vocabulary.excluding`; 0 for a word that is in
        no list.

    Raises
    ------
    ValueError
        Wrong axes or lengths, wrong types, a negative id, chunks in disorder, NaN or infinity. The
        message names the field.
    """

    stem: Ids
    vector: Ids
    chunk: Ids
    log_class: Floats
    name: Bools
    negated: Bools
    exclusion: Ids

    def __post_init__(self) -> None:
        for name in ("stem", "vector", "chunk", "exclusion"):
            object.__setattr__(self, name, _ids(getattr(self, name), name))
        for name in ("name", "negated"):
            object.__setattr__(self, name, _flags(getattr(self, name), name, 1))
        if len(self.stem):
            logs = as_float_array(self.log_class, "log_class", 2).astype(np.float64)
        else:
            logs = np.zeros((0, NAME))
        object.__setattr__(self, "log_class", np.ascontiguousarray(logs))
        if logs.shape[1] != NAME:
            raise ValueError(f"log_class must have {NAME} columns, not {logs.shape[1]}")
        for field in fields(self):
            length = len(getattr(self, field.name))
            if length != len(self.stem):
                raise ValueError(f"{field.name}: {length} words, but stem has {len(self.stem)}")
        if not np.isfinite(logs).all():
            raise ValueError("log_class: holds NaN or infinity")
        if (np.diff(self.chunk) < 0).any():
            raise ValueError("chunk must be in ascending order")

    def __len__(self) -> int:
        return len(self.stem)

    @cached_property
    def packed(self) -> Ids:
        """The words as the kernel reads them: int32 (6, n)."""
        classes = (
            np.where(self.name, NAME, self.log_class.argmax(axis=1)) if len(self) else self.stem
        )
        rows = (self.stem, self.vector, self.chunk, classes, self.negated, self.exclusion)
        return np.array(rows, dtype=np.int32)

    @cached_property
    def limits(self) -> tuple[int, int, int]:
        """The largest vector, chunk and exclusion; -1 without words."""
        if not len(self):
            return -1, -1, -1
        return int(self.vector.max()), int(self.chunk[-1]), int(self.exclusion.max())


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Vectors and exclusions of words, for any text.

    Parameters
    ----------
    vectors
        float32 (types, d): a vector of length 1 for each type of word, or of zeros for an unknown
        type.
    excluding
        bool (codes, codes), symmetric: which words cannot both be true, as "left" and "right". Row
        0 is for words that exclude nothing. Equal stems never exclude each other, so that one code
        can stand for many words, as for all numbers.

    Raises
    ------
    ValueError
        Wrong axes or types, a vector of another length, NaN, infinity, or a table that is not
        symmetric. The message names the field.
    """

    vectors: Vectors
    excluding: Bools

    def __post_init__(self) -> None:
        vectors = _array(self.vectors, "vectors", 2)
        if len(vectors):  # texts without content words need no vectors
            vectors = as_float_array(vectors, "vectors", 2)
        if vectors.size and (large := np.abs(vectors).max(axis=1)).max() > np.finfo(FLOAT32).max:
            raise ValueError(f"vectors: the values of row {large.argmax()} are too large")
        vectors = vectors.astype(FLOAT32, copy=False)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
        bad = np.flatnonzero(~((np.abs(lengths - 1.0) <= _LENGTH_TOLERANCE) | (lengths == 0.0)))
        if bad.size:
            raise ValueError(
                f"vectors: row {bad[0]} has the length {lengths[bad[0]]:g}; 1 or 0 was expected"
            )
        excluding = _flags(self.excluding, "excluding", 2)
        if excluding.shape[0] != excluding.shape[1] or (excluding != excluding.T).any():
            raise ValueError("excluding must be a symmetric matrix")
        if not len(excluding) or excluding[0].any():
            raise ValueError("excluding: row 0 must be all false")
        object.__setattr__(self, "vectors", np.ascontiguousarray(vectors))
        object.__setattr__(self, "excluding", excluding)


def _ids(values: Any, name: str) -> Ids:
    ids = _array(values, name, 1)
    if ids.dtype.kind not in "iu" and ids.size:
        raise ValueError(f"{name} must be integers, not {ids.dtype}")
    if ids.size and (ids.min() < 0 or ids.max() > np.iinfo(np.int32).max):
        raise ValueError(f"{name}: ids must be at least 0 and fit into int32")
    return np.ascontiguousarray(ids, dtype=np.int32)


def _flags(values: Any, name: str, ndim: int) -> Bools:
    flags = _array(values, name, ndim)
    if flags.dtype != np.bool_ and flags.size:
        raise ValueError(f"{name} must be true and false, not {flags.dtype}")
    return np.ascontiguousarray(flags, dtype=np.bool_)


def _array(values: Any, name: str, ndim: int) -> npt.NDArray[Any]:
    array = readable(values, name)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, not {array.ndim} (shape {array.shape})")
    return array
