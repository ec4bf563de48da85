"""The statistics of the experiments by SciPy: correlations and classification.

Every draw comes from a seed, so the same scores give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.comparing.statistics import RESAMPLES, Values, interval
from vcs_runtime.jobs.bootstrap import SEED


def kendall(first: Values, second: Values) -> float:
    """Compute Kendall's tau-b of two samples `(n,)`; NaN if one does not vary."""
    from scipy.stats import kendalltau

    return float(kendalltau(first, second).statistic) if _vary(first, second) else float("nan")


def kendall_interval(
    first: Values, second: Values, *, resamples: int = 1000, seed: int = SEED
) -> tuple[float, float]:
    """Compute the 95 % percentile-bootstrap interval of Kendall's tau-b of the means of systems.

    Items are drawn, the same ones for all systems; a side is `(systems, items)`, or means
    `(systems,)`.
    """
    one, other = np.triu_indices(len(first), 1)
    draw = np.random.default_rng(seed)
    taus = np.full(resamples, np.nan)
    for i in range(resamples):
        items = draw.integers(first.shape[1], size=first.shape[1])
        a, b = means_of(first, items), means_of(second, items)
        a, b = np.sign(a[one] - a[other]), np.sign(b[one] - b[other])
        untied = float((a @ a) * (b @ b))
        if untied:
            taus[i] = a @ b / np.sqrt(untied)
    return interval(taus)


def means_of(side: Values, items: Any = slice(None)) -> Values:
    """Return the means `(systems,)` of scores `(systems, items)`; means stay as they are."""
    return side[:, items].mean(axis=1) if side.ndim > 1 else side


def spearman(first: Values, second: Values) -> float:
    """Compute Spearman's rho of two samples `(n,)`; NaN if one does not vary."""
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic) if _vary(first, second) else float("nan")


def _vary(*sides: Values) -> bool:
    return all(len(side) > 1 and np.ptp(side) > 0 for side in sides)


def classification(
    scores: Values, valid: npt.NDArray[np.bool_], threshold: float = 0.5
) -> dict[str, Any]:
    """Measure how well scores `(n,)` separate valid texts from invalid texts.

    The AUC is NaN unless there are texts of both kinds.
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
class Significance:
    """How the differences between systems are tested."""

    correction: str = "holm"  # of the p-values, for the number of tests
    resamples: int | None = None  # None: as many as the number of tests needs
    seed: int = SEED


@dataclass(frozen=True)
class Rated:
    """A correlation with ratings."""

    mean: float  # over raters
    low: float
    high: float
    by_rater: tuple[float, ...]


def rated(
    measure: Callable[[Values, Values], float],
    scores: Values,
    ratings: Values,
    groups: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Rated:
    """Correlate scores `(n,)` with ratings `(n, raters)`; the bootstrap draws whole groups."""
    rows = [np.flatnonzero(np.array(groups) == group) for group in dict.fromkeys(groups)]
    draw = np.random.default_rng(seed)

    def by_rater(chosen: npt.NDArray[np.intp]) -> list[float]:
        return [measure(scores[chosen], column) for column in ratings[chosen].T]

    single = by_rater(np.arange(len(scores)))
    means = []
    for _ in range(resamples):
        drawn = draw.integers(len(rows), size=len(rows))
        chosen = np.concatenate([rows[i] for i in drawn])
        means.append(float(np.mean(by_rater(chosen))))
    return Rated(float(np.mean(single)), *interval(np.array(means)), tuple(single))
