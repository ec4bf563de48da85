"""Spark: pairs in two columns of a data frame, by `predict_batch_udf` (docs/guide/clusters.md).

This module does not import Spark: `predict_batch_udf` takes a function that returns a function of
arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from vcs_runtime.errors import unknown_choice
from vcs_runtime.scoring.columns import Columns, names_of, pairs_of, to_columns
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.scorer import Scorer

Predict = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any] | Columns]


def make_predict_fn(
    config: ScorerConfig | str | os.PathLike[str] = "default",
    options: Options = Options(),
    *,
    columns: str | Iterable[str] = "vcs",
) -> Predict:
    """Open a scorer and return a function for `predict_batch_udf`.

    Spark calls `make_predict_fn` without arguments in each of its Python workers:
    `functools.partial(make_predict_fn, "/models/authors", columns=...)`.

    Parameters
    ----------
    config
        How the scorer is opened. A bundle's folder means this bundle on the CPU. `threads` should
        be `spark.task.cpus`; None means 1, because Spark runs a worker for each core.
    options
        How pairs are scored.
    columns
        A score, a count, `flags`, `segmenter`, `error` or `signature`; or several, for a dict of
        arrays, which fits a StructType with the same names.

    Returns
    -------
    function
        `predict(reference, generated)` takes two arrays of n texts. A row that cannot be scored,
        such as a null, has NaN and an `error` (otherwise ""); it does not fail the task.

    Raises
    ------
    BundleError, DeviceError, CacheError
        As for `Scorer.open`.
    ValueError
        A name in `columns` is unknown.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if name not in names_of(options):
            raise unknown_choice("columns", name, names_of(options))
    config = ScorerConfig.of(config, device="cpu")
    scorer = Scorer.from_config(replace(config, threads=config.threads or 1))

    def predict(
        reference: npt.NDArray[Any], generated: npt.NDArray[Any]
    ) -> npt.NDArray[Any] | Columns:
        results = list(scorer.iter_scores(pairs_of(reference, generated), options))
        scored = to_columns(results, options)
        if isinstance(columns, str):
            return scored[columns]
        return {name: scored[name] for name in names}

    return predict
