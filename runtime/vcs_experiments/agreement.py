"""How far scores agree with published ones: pair by pair, and how judges rank systems."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Final

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.leaderboard import ByJudge, leaderboard
from vcs_experiments.metrics.scoring import Metrics, ScoresById
from vcs_runtime.comparing.statistics import Values
from vcs_runtime.comparing.tables import Cell, Table
from vcs_runtime.scoring.score_table import LABELS

#: The scores whose means are compared with the published means of HM-CF.
COMPARED: Final = ("hm_cf", "coarse", "fine_f1", "las", "margin", "vcs")
#: What stands in the place of a published judge for the published ranking.
ALL: Final = "all, by Borda"

Scores = Mapping[str, Mapping[str, Mapping[str, Values]]]
"""Values of the clips that are compared: by judge, by score, by system."""


def agreement(
    groups: Mapping[str, str],
    scores: ScoresById,
    published: ScoresById,
    metrics: Metrics,
    group: str,
) -> list[Table]:
    """Compare our scores by id with published scores, for the metrics that both have.

    `groups` maps each id to its group.
    """
    rows: list[tuple[Cell, ...]] = []
    common = [
        metric for metric in metrics.columns if any(metric in own for own in published.values())
    ]
    ids = {metric: [i for i in groups if metric in published.get(i, ())] for metric in common}
    for metric in common:
        ours, theirs = (
            np.array([source[i][metric] for i in ids[metric]]) for source in (scores, published)
        )
        # Python's `round` is exact; NumPy's multiplies first.
        rounded = np.array([round(value, 3) for value in ours.tolist()])
        off = float(np.abs(rounded - theirs).max()) if len(ours) else float("nan")
        rho, tau = statistics.spearman(ours, theirs), statistics.kendall(ours, theirs)
        rows.append((metric, len(ours), int((rounded == theirs).sum()), off, rho, tau))
    columns = (
        "metric",
        "pairs",
        "equal to 3 decimals",
        "largest difference",
        "Spearman",
        "Kendall tau-b",
    )
    single = Table("published", "Against the published scores, pair by pair", columns, rows)
    rows = []
    for name in dict.fromkeys(groups.values()):
        row: list[Cell] = [name]
        for metric in common:
            chosen = [i for i in ids[metric] if groups[i] == name]
            for source in (scores, published):
                row.append(float(np.mean([source[i][metric] for i in chosen])) if chosen else None)
        rows.append(tuple(row))
    names = (group, *(part for metric in common for part in (metric, f"{metric} published")))
    return [
        single,
        Table(
            "published_means", f"Means of ours and of the published scores, by {group}", names, rows
        ),
    ]


def agreement_tables(scores: Scores, published: ByJudge, *, seed: int) -> list[Table]:
    """Compare how judges rank systems: one's own with each other, and with the published means."""
    tables = []
    rows: list[tuple[Cell, ...]] = []
    for first, second in combinations(scores, 2):
        a, b = (np.array(list(scores[judge]["hm_cf"].values())) for judge in (first, second))
        rows.append((first, second, len(a), *_rank_agreement(a, b, seed)))
    measures = ("systems", "Kendall tau-b", "low", "high", "Spearman rho")
    note = "With 95 % bootstrap intervals of tau over clips."
    if rows:
        heads = ("judge", "judge 2", *measures)
        tables.append(Table("agreement", "Agreement of judges by mean HM-CF", heads, rows, note))
    theirs = {
        judge: {s: means.hm_cf for s, means in own.items()} for judge, own in published.items()
    }
    theirs[ALL] = {place.system: -float(place.rank) for place in leaderboard(published, {})}
    rows = []
    for judge, own in scores.items():
        for other, means in theirs.items():
            for name in COMPARED:
                ours = {system: values for system, values in own[name].items() if system in means}
                if len(ours) > 1:
                    a, b = (
                        np.array(list(ours.values())),
                        np.array([means[system] for system in ours]),
                    )
                    rows.append(
                        (judge, LABELS[name], other, len(ours), *_rank_agreement(a, b, seed))
                    )
    if rows:
        columns = ("judge", "score", "published judge", *measures)
        note += " The published means have no clips, and stay as they are."
        tables.append(
            Table("published", "Agreement with the published means of HM-CF", columns, rows, note)
        )
    return tables


def _rank_agreement(first: Values, second: Values, seed: int) -> tuple[float, ...]:
    """Return tau, its interval (low, high) and rho of two sides.

    Each side holds scores `(systems, clips)` or means `(systems,)`.
    """
    a, b = (side.mean(axis=1) if side.ndim > 1 else side for side in (first, second))
    low, high = statistics.kendall_interval(first, second, seed=seed)
    return statistics.kendall(a, b), low, high, statistics.spearman(a, b)
