"""The statistics of the experiments: paired tests by NumPy; correlations and classification by SciPy.

Every draw comes from a seed, so the same scores give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.bootstrap import SEED

Values = npt.NDArray[np.float64]
RESAMPLES = 2000
# Values that are drawn at a time, unless a single resample has more.
_DRAWN = 1_000_000


@dataclass(frozen=True)
class Difference:
    """A paired difference.

    Attributes
    ----------
    mean
        The mean of the differences.
    low, high
        The 95 % percentile-bootstrap interval of the mean; NaN for fewer than two pairs.
    p_bootstrap, p_permutation
        Two-sided p-values; NaN for fewer than two pairs.
    """

    mean: float
    low: float
    high: float
    p_bootstrap: float
    p_permutation: float


def paired_difference(
    first: Values, second: Values, *, resamples: int = RESAMPLES, seed: int = SEED
) -> Difference:
    """Compare two samples of the same pairs.

    The bootstrap's p-value is the one of sacrebleu's paired test: how often a resample, centred on zero, lies
    as far off as the mean. The permutation test swaps the two sides of pairs. Both count the data themselves.

    Parameters
    ----------
    first
        Scores of the pairs, `(n,)`.
    second
        Other scores of the same pairs in the same order, `(n,)`.
    resamples
        Number of resamples of either test.
    seed
        Seed of the draws.

    Returns
    -------
    Difference
        `first - second`.
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
    return Difference(mean, *_interval(means), p_bootstrap, _permutation(differences, resamples, seed))


def _bootstrap_means(values: Values, resamples: int, seed: int) -> Values:
    if np.ptp(values) == 0:
        return np.full(resamples, values.mean())
    draw, n = np.random.default_rng(seed), len(values)
    drawn = [values[draw.integers(n, size=(size, n))].mean(axis=1) for size in _batches(resamples, n)]
    return np.concatenate(drawn)


def _permutation(differences: Values, resamples: int, seed: int) -> float:
    """Return the p-value of `scipy.stats.permutation_test` on paired samples, with SciPy's draws."""
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
    own = 0 if exact else 1  # the data themselves are among all swaps, but not among drawn ones
    return min(1.0, 2 * (tail + own) / (len(means) + own))


def _batches(resamples: int, n: int) -> Iterator[int]:
    """Yield how many resamples of `n` values are drawn at a time; the draws do not depend on it."""
    most = max(1, _DRAWN // n)
    for start in range(0, resamples, most):
        yield min(most, resamples - start)


def _interval(means: Values) -> tuple[float, float]:
    # A measure is undefined for a resample in which a rater gave one mark to all.
    means = means[np.isfinite(means)]
    if not len(means):
        return float("nan"), float("nan")
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def wilcoxon(first: Values, second: Values) -> float:
    """Compute the two-sided p-value of Wilcoxon's signed-rank test of paired samples `(n,)`; 1 if equal."""
    from scipy.stats import wilcoxon

    return 1.0 if np.array_equal(first, second) else float(wilcoxon(first, second).pvalue)


def holm(p: Values) -> Values:
    """Adjust p-values `(n,)` for their number by Holm's step-down method."""
    order = np.argsort(p)
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def kendall(first: Values, second: Values) -> float:
    """Compute Kendall's tau-b of two samples `(n,)`; NaN if one does not vary."""
    from scipy.stats import kendalltau

    return float(kendalltau(first, second).statistic) if _vary(first, second) else float("nan")


def kendall_interval(
    first: Values, second: Values, *, resamples: int = 1000, seed: int = SEED
) -> tuple[float, float]:
    """Compute the 95 % percentile-bootstrap interval of Kendall's tau-b of the means of systems.

    Items are drawn, the same ones for all systems.

    Parameters
    ----------
    first
        Scores, `(systems, items)`.
    second
        Scores of the same items, `(systems, items)`; or means, `(systems,)`, which stay as they are.
    resamples
        Number of resamples.
    seed
        Seed of the draws.

    Returns
    -------
    low, high
        The interval, without resamples in which all means of a side are equal.
    """
    one, other = np.triu_indices(len(first), 1)
    draw = np.random.default_rng(seed)
    taus = np.full(resamples, np.nan)
    for i in range(resamples):
        items = draw.integers(first.shape[1], size=first.shape[1])
        a, b = (side[:, items].mean(axis=1) if side.ndim > 1 else side for side in (first, second))
        a, b = np.sign(a[one] - a[other]), np.sign(b[one] - b[other])
        if untied := float((a @ a) * (b @ b)):
            taus[i] = a @ b / np.sqrt(untied)
    return _interval(taus)


def spearman(first: Values, second: Values) -> float:
    """Compute Spearman's rho of two samples `(n,)`; NaN if one does not vary."""
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic) if _vary(first, second) else float("nan")


def _vary(*sides: Values) -> bool:
    return all(len(side) > 1 and np.ptp(side) > 0 for side in sides)


def classification(scores: Values, valid: npt.NDArray[np.bool_], threshold: float = 0.5) -> dict[str, Any]:
    """Measure how well scores separate valid texts from invalid ones.

    Parameters
    ----------
    scores
        `(n,)`.
    valid
        `(n,)`, whether each text is valid.
    threshold
        A score from here on says that a text is valid.

    Returns
    -------
    dict
        The numbers of valid and invalid texts; accuracy; precision, recall and F1 of "valid". AUC: how often
        a valid text scores above an invalid one (ties half), at any threshold; NaN without both kinds.
    """
    from scipy.stats import mannwhitneyu

    positive = scores >= threshold
    hits = int((positive & valid).sum())
    precision = hits / int(positive.sum()) if positive.any() else 0.0
    recall = hits / int(valid.sum()) if valid.any() else 0.0
    both = bool(valid.any() and not valid.all())
    u = float(mannwhitneyu(scores[valid], scores[~valid]).statistic) if both else float("nan")
    return {
        "valid": int(valid.sum()),
        "invalid": int((~valid).sum()),
        "accuracy": float((positive == valid).mean()),
        "precision": precision,
        "recall": recall,
        "F1": 2 * precision * recall / (precision + recall) if hits else 0.0,
        "AUC": u / (int(valid.sum()) * int((~valid).sum())) if both else float("nan"),
    }


@dataclass(frozen=True)
class Rated:
    """A correlation with ratings.

    Attributes
    ----------
    mean
        The mean over raters.
    low, high
        Its 95 % percentile-bootstrap interval.
    by_rater
        The correlation with each rater.
    """

    mean: float
    low: float
    high: float
    by_rater: tuple[float, ...]


def rated(
    measure: Callable[[Values, Values], float], scores: Values, ratings: Values, groups: Sequence[str],
    *, resamples: int = RESAMPLES, seed: int = SEED,
) -> Rated:  # fmt: skip
    """Correlate scores with the ratings of several raters.

    Parameters
    ----------
    measure
        The correlation of two samples.
    scores
        `(n,)`.
    ratings
        `(n, raters)`.
    groups
        `(n,)`, the group of each score; the bootstrap draws whole groups.
    resamples
        Number of resamples.
    seed
        Seed of the draws.

    Returns
    -------
    Rated
        The correlation over raters, with its interval.
    """
    rows = [np.flatnonzero(np.array(groups) == group) for group in dict.fromkeys(groups)]
    draw = np.random.default_rng(seed)

    def of(chosen: npt.NDArray[np.intp]) -> list[float]:
        return [measure(scores[chosen], ratings[chosen, rater]) for rater in range(ratings.shape[1])]

    single = of(np.arange(len(scores)))
    means = [
        float(np.mean(of(np.concatenate([rows[i] for i in draw.integers(len(rows), size=len(rows))]))))
        for _ in range(resamples)
    ]
    return Rated(float(np.mean(single)), *_interval(np.array(means)), tuple(single))
