"""Correlation of ViSIL scores with answers to questions, and its permutation test.

This module needs SciPy (extra `experiments`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import TextError

Values = npt.NDArray[np.float64]
SHUFFLES = 10_000
"""Default number of shuffles of a permutation test."""
SEED = 20250101
"""Default seed of the shuffles."""
LARGEST_SCORE = 1e9
"""Largest size of a score, in nats: far more than a model can lose, and far less than overflows."""
_NEWTON_STEPS = 50
_ROUNDING = 1e-12
# From here on, rounding errors are larger than the entries of an inverse.
_CONDITION = 1e15


@dataclass(frozen=True, slots=True)
class Logit:
    """The logistic regression P(correct) = 1 / (1 + exp(-(b0 + b1 * score)))."""

    b0: float
    b1: float
    se0: float  # standard errors
    se1: float
    p0: float  # two-sided, of Wald's test that the coefficient is 0
    p1: float


@dataclass(frozen=True, slots=True)
class Correlation:
    """How ViSIL scores and answers go together."""

    n: int
    correct: int
    r: float  # Pearson's
    p: float  # of `r` by permutation: twice the smaller tail
    exact: bool  # whether `p` counts all permutations; otherwise random shuffles
    grouped: bool  # whether answers were shuffled within groups only
    logit: Logit | None  # None if the answers are separable
    separable: bool  # whether a threshold on the scores separates correct from wrong answers

    def to_dict(self) -> dict[str, Any]:
        """Return the result as an object for JSON."""
        return asdict(self)


def correlate(
    scores: Sequence[float],
    correct: Sequence[int],
    *,
    groups: Sequence[str] | None = None,
    trim: bool = False,
    shuffles: int = SHUFFLES,
    seed: int = SEED,
) -> Correlation:
    """Correlate ViSIL scores with answers, 1 or 0, shuffled within `groups` if there are any.

    `trim` leaves out one largest and one smallest score. Raises TextError for fewer than 3 or equal
    values.
    """
    x, y = np.asarray(scores, np.float64), np.asarray(correct, np.float64)
    names = np.asarray(groups if groups is not None else [""] * len(x))
    if not x.ndim == y.ndim == 1 or not len(x) == len(y) == len(names):
        raise TextError(f"scores, correct and groups: {len(x)}, {len(y)} and {len(names)} values")
    if not (np.abs(x) <= LARGEST_SCORE).all():
        raise TextError(f"scores must be numbers of at most {LARGEST_SCORE:g}")
    if not np.isin(y, (0, 1)).all():
        raise TextError("correct must be 0 or 1 for each score")
    if trim:
        inner = np.ones(len(x), bool)
        if len(x) > 2:
            inner[[int(np.argmax(x)), int(np.argmin(x))]] = False
        x, y, names = x[inner], y[inner], names[inner]
    if len(x) < 3:
        raise TextError(f"scores: {len(x)} values are too few; at least 3 are needed")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise TextError(f"{'scores' if np.ptp(x) == 0 else 'correct'}: all values are the same")
    r = float(np.corrcoef(x, y)[0, 1])
    if groups is None:
        p, exact = _p(x, y, shuffles, seed)
    else:
        p, exact = _grouped_p(x, y, names, shuffles, seed), False
    separable = _separable(x, y)
    logit = None if separable else fit_logit(x, y)
    return Correlation(len(x), int(y.sum()), r, p, exact, groups is not None, logit, separable)


def fit_logit(x: Values, y: Values) -> Logit:
    """Fit a logistic regression, float64 `(n,)`, by Newton's method.

    Raises TextError if it has no estimate.
    """
    from scipy.special import expit
    from scipy.stats import norm

    if _separable(x, y):
        raise TextError(
            "a threshold on the scores separates the answers: the logistic regression has no"
            " estimate"
        )
    # Scores are standardised, so that the equations are well conditioned.
    mean, spread = x.mean(), x.std()
    z = np.stack([np.ones_like(x), (x - mean) / spread], axis=1)
    b = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        likely = expit(z @ b)
        information = (z * (likely * (1 - likely))[:, None]).T @ z
        if not np.linalg.cond(information) < _CONDITION:
            raise TextError(
                "scores: one score is so far from the others that the logistic regression has no"
                " estimate"
            )
        covariance = np.linalg.inv(information)
        step = covariance @ z.T @ (y - likely)
        b += step
        if np.abs(step).max() < _ROUNDING:
            break
    back = np.array([[1.0, -mean / spread], [0.0, 1.0 / spread]])
    estimate, errors = back @ b, np.sqrt(np.diag(back @ covariance @ back.T))
    ps = 2 * norm.sf(np.abs(estimate / errors))
    return Logit(*(float(value) for value in (*estimate, *errors, *ps)))


def _separable(x: Values, y: Values) -> bool:
    """Return whether a threshold separates correct from wrong answers.

    Scores equal to it may be both.
    """
    right, wrong = x[y == 1], x[y == 0]
    return bool(right.max() <= wrong.min() or wrong.max() <= right.min())


def _p(x: Values, y: Values, shuffles: int, seed: int) -> tuple[float, bool]:
    """Return the p-value of r by SciPy's permutation test, and whether it is exact."""
    from scipy.stats import permutation_test

    def statistic(right: Values, wrong: Values, axis: int) -> Values:
        # A permutation chooses the scores of the correct answers, and r grows with the mean of
        # these scores.
        return np.asarray(np.mean(right, axis=axis))

    right, wrong = x[y == 1], x[y == 0]
    # SciPy needs two of each; a single answer may go to any score.
    if min(len(right), len(wrong)) == 1:
        [one] = right if len(right) == 1 else wrong
        return min(1.0, 2 * float(min((x <= one).mean(), (x >= one).mean()))), True
    test = permutation_test(
        (right, wrong),
        statistic,
        permutation_type="independent",
        vectorized=True,
        n_resamples=shuffles,
        batch=1000,
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue), math.comb(len(x), len(right)) <= shuffles


def _grouped_p(x: Values, y: Values, groups: npt.NDArray[Any], shuffles: int, seed: int) -> float:
    """Return the p-value of r with answers shuffled within groups.

    The data count as one more shuffle.
    """
    draw = np.random.default_rng(seed)
    rows = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    observed, low, high = float(x @ y), 0, 0
    # Rounding depends on the order; ties must stay ties.
    margin = _ROUNDING * float(np.abs(x).sum())
    shuffled = y.copy()
    for _ in range(shuffles):
        for chosen in rows:
            shuffled[chosen] = draw.permutation(y[chosen])
        value = float(x @ shuffled)
        low += value <= observed + margin
        high += value >= observed - margin
    return min(1.0, 2 * (min(low, high) + 1) / (shuffles + 1))
