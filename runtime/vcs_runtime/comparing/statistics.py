"""Paired tests of scores, in NumPy alone.

Every draw comes from a seed, so the same scores give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.bootstrap import SEED

Values = npt.NDArray[np.float64]
RESAMPLES = 2000
# Values that are drawn at a time, unless a single resample has more.
_DRAWN = 1_000_000


@dataclass(frozen=True)
class Difference:
    """A paired difference; all but the mean are NaN for fewer than two pairs."""

    mean: float
    low: float  # of the 95 % percentile-bootstrap interval
    high: float
    p_bootstrap: float  # two-sided
    p_permutation: float


def paired_difference(
    first: Values, second: Values, *, resamples: int = RESAMPLES, seed: int = SEED
) -> Difference:
    """Compare two samples `(n,)` of the same pairs.

    The bootstrap's p-value is the one of sacrebleu's paired test: how often a resample, centred on
    zero, lies as far off as the mean. The permutation test swaps the two sides of pairs. Both count
    the data themselves.
    """
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    mean = float(differences.mean())
    if len(differences) < 2:
        return Difference(mean, np.nan, np.nan, np.nan, np.nan)
    if not differences.any():
        return Difference(0.0, 0.0, 0.0, 1.0, 1.0)
    means = _bootstrap_means(differences, resamples, seed)
    # Within rounding: a sum depends on its order, a tie must stay one.
    far = np.abs(means - means.mean()) >= abs(mean) * (1 - 1e-12)
    p_bootstrap = float((far.sum() + 1) / (resamples + 1))
    return Difference(
        mean, *interval(means), p_bootstrap, _permutation(differences, resamples, seed)
    )


def _bootstrap_means(values: Values, resamples: int, seed: int) -> Values:
    if np.ptp(values) == 0:
        return np.full(resamples, values.mean())
    draw, n = np.random.default_rng(seed), len(values)
    drawn = [
        values[draw.integers(n, size=(size, n))].mean(axis=1) for size in _batches(resamples, n)
    ]
    return np.concatenate(drawn)


def _permutation(differences: Values, resamples: int, seed: int) -> float:
    """Return the p-value of `scipy.stats.permutation_test` for paired samples.

    The random draws are the same as SciPy's.
    """
    draw, n = np.random.default_rng(seed), len(differences)
    exact = 2**n <= resamples
    if exact:  # all ways to swap the sides of pairs
        swapped = iter([np.arange(2**n)[:, None] >> np.arange(n) & 1])
    else:
        sizes = _batches(resamples, n)
        swapped = (draw.permuted(np.tile([0, 1], (size, n, 1)), axis=-1)[..., 0] for size in sizes)
    means = np.concatenate([(differences * (1 - 2 * sides)).mean(axis=1) for sides in swapped])
    mean = differences.mean()
    tie = 100 * np.finfo(np.float64).eps * abs(mean)
    tail = min(int((means <= mean + tie).sum()), int((means >= mean - tie).sum()))
    # The data themselves are among all swaps. They are added to swaps that are drawn.
    added = 0 if exact else 1
    return min(1.0, 2 * (tail + added) / (len(means) + added))


def _batches(resamples: int, n: int) -> Iterator[int]:
    """Yield how many resamples of `n` values are drawn at a time; the draws do not depend on it."""
    most = max(1, _DRAWN // n)
    for start in range(0, resamples, most):
        yield min(most, resamples - start)


def interval(means: Values) -> tuple[float, float]:
    """Return the 95 % percentile interval of resampled values `(n,)`; NaN values are left out."""
    # A measure is undefined for a resample in which a rater gave one mark to all.
    means = means[np.isfinite(means)]
    if not len(means):
        return float("nan"), float("nan")
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def holm(p: Values) -> Values:
    """Adjust p-values `(n,)` for their number by Holm's step-down method."""
    order = np.argsort(p)
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
