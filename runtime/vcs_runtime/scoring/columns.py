"""Pairs and their scores as columns: the arrays that Ray Data, Spark and Triton exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.scoring import score_table
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Pair, Result

Columns = dict[str, npt.NDArray[Any]]

COUNTS = ("n_ref", "n_gen", "reference_index", "n_references")
TEXTS = ("flags", "segmenter", "error", "signature")


def names_of(options: Options) -> tuple[str, ...]:
    """Return the names of the columns of results with these options."""
    return (*scores_of(options), *COUNTS, *TEXTS)


def scores_of(options: Options) -> tuple[str, ...]:
    """Return the names of the scores of results with these options."""
    return score_table.names_with(options.also)


def pairs_of(reference: Iterable[Any], generated: Iterable[Any]) -> Iterator[Pair]:
    """Pair up two columns of equal length.

    A value that is not a text, such as a missing one, is passed on: the scorer reports it as the
    row's `error`.
    """
    return zip(map(plain, reference), map(plain, generated), strict=True)


def to_columns(results: Sequence[Result], options: Options = Options()) -> Columns:
    """Turn results into one column for each of their names (`names_of`): float64, int64, or texts.

    Scores are NaN in a row with an `error`. A missing text is "": a column of nulls alone would
    have no type, and its file would not fit the others.
    """
    columns: Columns = {
        name: np.array([getattr(result, name) for result in results], np.float64)
        for name in scores_of(options)
    }
    for name in COUNTS:
        columns[name] = np.array([getattr(result, name) for result in results], np.int64)
    for name in TEXTS:
        columns[name] = np.array([_text(getattr(result, name)) for result in results], object)
    return columns


def _text(value: str | tuple[str, ...] | None) -> str:
    return ",".join(value) if isinstance(value, tuple) else value or ""


def plain(value: Any) -> Any:
    """Turn an array of several references, as columns of Parquet files hold them, into a list."""
    return value.tolist() if isinstance(value, np.ndarray) else value
