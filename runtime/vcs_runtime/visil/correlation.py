"""Whether ViSIL tells how well questions are answered: logistic regression, Pearson's r, permutation test.

Needs SciPy (extra `experiments`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import TextError

Values = npt.NDArray[np.float64]
SHUFFLES = 10_000
SEED = 20250101
_STEPS = 50
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Logit:
    """P(correct) = 1 / (1 + exp(-(b0 + b1 * score))): estimates, standard errors, two-sided Wald p-values."""

    b0: float
    b1: float
    se0: float
    se1: float
    p0: float
    p1: float


@dataclass(frozen=True, slots=True)
class Correlation:
    """Scores against answers. `logit` is None, and `separable` true, where a threshold splits the answers.

    p      of r, two-sided: twice the smaller tail; by all ways to deal out the answers if they are at most
           the shuffles (`exact`), else by shuffles
    """

    n: int
    correct: int
    r: float
    p: float
    exact: bool
    grouped: bool
    logit: Logit | None
    separable: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("b0", "b1", "se0", "se1", "p0", "p1")
        logit = {name: getattr(self.logit, name) for name in names} if self.logit else None
        return {
            "n": self.n, "correct": self.correct, "r": self.r, "p": self.p, "exact": self.exact,
            "grouped": self.grouped, "logit": logit, "separable": self.separable,
        }  # fmt: skip


def correlate(
    scores: Sequence[float], correct: Sequence[int], *, groups: Sequence[str] | None = None,
    trim: bool = False, shuffles: int = SHUFFLES, seed: int = SEED,
) -> Correlation:  # fmt: skip
    """Correlate ViSIL scores with answers, 1 (correct) or 0, of the same length.

    groups  what each belongs to (its video): answers are then shuffled within a group only, since those of
            one video are not drawn apart
    trim    leave out one largest and one smallest score, as the paper did

    Raises TextError: fewer than 3 values, no two different ones, other lengths.
    """
    x, y = np.asarray(scores, np.float64), np.asarray(correct, np.float64)
    names = np.asarray(groups if groups is not None else [""] * len(x))
    if not x.ndim == y.ndim == 1 or not len(x) == len(y) == len(names):
        raise TextError(f"scores, correct and groups: {len(x)}, {len(y)} and {len(names)} values")
    if not np.isfinite(x).all():
        raise TextError("scores: there is one that is not a number")
    if not np.isin(y, (0, 1)).all():
        raise TextError("correct: there is one that is neither 0 nor 1")
    if trim:
        kept = np.ones(len(x), bool)
        if len(x) > 2:
            kept[[int(np.argmax(x)), int(np.argmin(x))]] = False
        x, y, names = x[kept], y[kept], names[kept]
    if len(x) < 3:
        raise TextError(f"scores: {len(x)} values are too few")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise TextError(f"{'scores' if np.ptp(x) == 0 else 'correct'}: all values are the same")
    r = float(np.corrcoef(x, y)[0, 1])
    p, exact = (
        (_grouped_p(x, y, names, shuffles, seed), False) if groups is not None else _p(x, y, shuffles, seed)
    )
    separable = _separable(x, y)
    logit = None if separable else fit_logit(x, y)
    return Correlation(len(x), int(y.sum()), r, p, exact, groups is not None, logit, separable)


def fit_logit(x: Values, y: Values) -> Logit:
    """Maximum likelihood, by Newton's steps. Raises TextError where there is none: separable answers."""
    from scipy.special import expit
    from scipy.stats import norm

    if _separable(x, y):
        raise TextError(
            "a threshold on the scores separates the answers: logistic regression has no estimate"
        )
    # About the mean and in units of the spread, so that the equations are well conditioned.
    mean, spread = x.mean(), x.std()
    z = np.stack([np.ones_like(x), (x - mean) / spread], axis=1)
    b = np.zeros(2)
    for _ in range(_STEPS):
        likely = expit(z @ b)
        covariance = np.linalg.inv((z * (likely * (1 - likely))[:, None]).T @ z)
        step = covariance @ z.T @ (y - likely)
        b += step
        if np.abs(step).max() < _ROUNDING:
            break
    back = np.array([[1.0, -mean / spread], [0.0, 1.0 / spread]])
    estimate, errors = back @ b, np.sqrt(np.diag(back @ covariance @ back.T))
    ps = 2 * norm.sf(np.abs(estimate / errors))
    return Logit(*(float(value) for value in (*estimate, *errors, *ps)))


def _separable(x: Values, y: Values) -> bool:
    """Whether all scores of one answer lie on one side of all of the other; they may touch in one value."""
    right, wrong = x[y == 1], x[y == 0]
    return bool(right.max() <= wrong.min() or wrong.max() <= right.min())


def _p(x: Values, y: Values, shuffles: int, seed: int) -> tuple[float, bool]:
    """SciPy's test of r. Answers are 0 or 1: dealing them out anew is choosing which scores get the ones."""
    from scipy.stats import permutation_test

    def statistic(right: Values, wrong: Values, axis: int) -> Values:
        # With the scores and the count of ones fixed, r grows with the mean of the scores that have them.
        return np.asarray(np.mean(right, axis=axis))

    right, wrong = x[y == 1], x[y == 0]
    if min(len(right), len(wrong)) == 1:  # SciPy wants two of each; one answer may be dealt to any score
        [one] = right if len(right) == 1 else wrong
        return min(1.0, 2 * float(min((x <= one).mean(), (x >= one).mean()))), True
    found = permutation_test(
        (right, wrong), statistic, permutation_type="independent", vectorized=True, n_resamples=shuffles,
        batch=1000, rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(found.pvalue), math.comb(len(x), len(right)) <= shuffles


def _grouped_p(x: Values, y: Values, groups: npt.NDArray[Any], shuffles: int, seed: int) -> float:
    """The same with answers shuffled within groups; the data themselves count as one shuffle more."""
    draw = np.random.default_rng(seed)
    rows = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    observed, low, high = float(x @ y), 0, 0
    margin = _ROUNDING * float(np.abs(x).sum())  # a sum depends on its order; a tie must stay one
    shuffled = y.copy()
    for _ in range(shuffles):
        for chosen in rows:
            shuffled[chosen] = draw.permutation(y[chosen])
        value = float(x @ shuffled)
        low += value <= observed + margin
        high += value >= observed - margin
    return min(1.0, 2 * (min(low, high) + 1) / (shuffles + 1))
