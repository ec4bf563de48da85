"""Columns in, columns out: pairs and their scores as the arrays that Ray Data, Spark and Triton hand over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_numba import Scores
from vcs_runtime.scoring.result import Pair, Result

Columns = dict[str, npt.NDArray[Any]]

COUNTS = ("n_ref", "n_gen", "reference_index", "n_references")
TEXTS = ("segmenter", "error", "signature")
NAMES = (*Scores._fields, *COUNTS, *TEXTS)


def pairs_of(reference: Iterable[Any], generated: Iterable[Any]) -> Iterator[Pair]:
    """The pairs of two columns of one length: a text and, of references, also a list or array of texts a row.

    What is no text, a missing value too, is left as it is: the scorer says so in the row's `error`.
    """
    return zip(map(plain, reference), map(plain, generated), strict=True)


def to_columns(results: Sequence[Result]) -> Columns:
    """A column for each of NAMES: the scores float64 (NaN in a row with an `error`), COUNTS int64, TEXTS str.

    A text that is not there is "": a column of nothing but nulls has no type, and files of such columns do
    not fit those of others.
    """
    columns: Columns = {
        name: np.array([getattr(result.scores, name, np.nan) for result in results], np.float64)
        for name in Scores._fields
    }
    for name in COUNTS:
        columns[name] = np.array([getattr(result, name) for result in results], np.int64)
    for name in TEXTS:
        columns[name] = np.array([getattr(result, name) or "" for result in results], object)
    return columns


def plain(value: Any) -> Any:
    """A list where an array holds several references, as columns of Parquet files do."""
    return value.tolist() if isinstance(value, np.ndarray) else value
