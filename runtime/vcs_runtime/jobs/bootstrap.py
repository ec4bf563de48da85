"""The interval of a mean, as `score`, `report` and the experiments print it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

RESAMPLES = 1000
SEED = 20250101
"""Fixed, so that the same scores give the same interval."""


def mean_interval(values: npt.NDArray[np.float64], *, seed: int = SEED) -> npt.NDArray[np.float64]:
    """Compute 95 % percentile-bootstrap intervals of means.

    The result has shape `(2,)` for values `(n,)`, and `(2, c)` for values `(c, n)`. It is NaN for
    a single value, which has no interval.
    """
    draw = np.random.default_rng(seed)
    rows = np.ascontiguousarray(values.T)
    if len(rows) == 1:
        return np.full((2, *rows.shape[1:]), np.nan)
    means = np.empty((RESAMPLES, *rows.shape[1:]))
    for i in range(RESAMPLES):  # one resample at a time: memory stays at one table
        # Added one after the other, so that a column alone has the same digits as beside others.
        means[i] = rows[draw.integers(len(rows), size=len(rows))].cumsum(axis=0)[-1] / len(rows)
    ends: npt.NDArray[np.float64] = np.percentile(means, [2.5, 97.5], axis=0)
    return ends


def ends_for_json(low: float, high: float) -> list[float | None]:
    """Return the ends of an interval; None in place of NaN, which JSON lacks."""
    return [None if math.isnan(end) else end for end in (low, high)]
