"""The interval of a mean, as `score`, `report` and the experiments print it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

RESAMPLES = 1000
SEED = 20250101
"""Fixed, so that the same scores give the same interval."""


def mean_interval(values: npt.NDArray[np.float64], *, seed: int = SEED) -> npt.NDArray[np.float64]:
    """Compute 95 % percentile-bootstrap intervals of means.

    The result has shape `(2,)` for values `(n,)`, and `(2, c)` for values `(c, n)`.
    """
    draw = np.random.default_rng(seed)
    rows = np.ascontiguousarray(values.T)
    means = np.empty((RESAMPLES, *rows.shape[1:]))
    for i in range(RESAMPLES):  # one resample at a time: memory stays at one table
        # Added one after the other, so that a column alone has the same digits as beside others.
        means[i] = rows[draw.integers(len(rows), size=len(rows))].cumsum(axis=0)[-1] / len(rows)
    ends: npt.NDArray[np.float64] = np.percentile(means, [2.5, 97.5], axis=0)
    return ends
