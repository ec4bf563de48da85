"""Spark: pairs in two columns of a data frame, through `predict_batch_udf` (docs/scale.md).

Nothing here imports Spark: what it wants is a function that makes a function of arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy.typing as npt

from vcs_runtime.errors import unknown_choice
from vcs_runtime.scoring.columns import (
    NAMES,
    Columns,
    pairs_of,
    to_columns,
)
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer

Predict = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any] | Columns]


def make_predict_fn(
    bundle: str | os.PathLike[str] = "default",
    options: Options = Options(),
    *,
    columns: str | Iterable[str] = "vcs",
    device: str = "cpu",
    threads: int = 1,
    segmenter: str | os.PathLike[str] = "auto",
    gpu_mem_gb: float | None = None,
) -> Predict:
    """Open a scorer and return `predict(reference, generated)`, for `predict_batch_udf`.

    columns  one of `columns.NAMES`: `predict` returns that array; or several: a dict of them, for
             a StructType of the same names
    threads  CPU threads of the model: what `spark.task.cpus` says

    `bundle`, `device`, `segmenter` and `gpu_mem_gb` as for `Scorer.open`. Spark calls this in each of its
    Python workers, without arguments: `functools.partial(make_predict_fn, "/models/authors", columns=...)`.

    `predict` takes two arrays of n texts. A row that cannot be scored, a null too, has NaN and an `error`
    (else ""); it fails no task. Raises what `Scorer.open` does, and ValueError for a column that is none.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if name not in NAMES:
            raise unknown_choice("columns", name, NAMES)
    scorer = Scorer.open(bundle, device, threads=threads, segmenter=segmenter, gpu_mem_gb=gpu_mem_gb)

    def predict(reference: npt.NDArray[Any], generated: npt.NDArray[Any]) -> npt.NDArray[Any] | Columns:
        scored = to_columns(list(scorer.iter_scores(pairs_of(reference, generated), options)))
        return scored[columns] if isinstance(columns, str) else {name: scored[name] for name in names}

    return predict
