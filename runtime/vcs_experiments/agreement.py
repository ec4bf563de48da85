"""How far scores agree with published ones: pair by pair, and how judges rank systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
#: Name of the published ranking among the published judges.
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
    metrics_of_published = set().union(*published.values())
    common = [metric for metric in metrics.columns if metric in metrics_of_published]
    ids = {metric: [i for i in groups if metric in published.get(i, ())] for metric in common}
    return [
        _by_pair(ids, scores, published),
        _by_group(ids, groups, scores, published, group),
    ]


def _by_pair(ids: Mapping[str, Sequence[str]], scores: ScoresById, published: ScoresById) -> Table:
    """Make a table of how far each metric agrees over its ids."""
    rows: list[tuple[Cell, ...]] = []
    for metric, chosen in ids.items():
        ours = np.array([scores[i][metric] for i in chosen])
        theirs = np.array([published[i][metric] for i in chosen])
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
    return Table("published", "Against the published scores, pair by pair", columns, rows)


def _by_group(
    ids: Mapping[str, Sequence[str]],
    groups: Mapping[str, str],
    scores: ScoresById,
    published: ScoresById,
    group: str,
) -> Table:
    """Make a table of our means and the published ones, by group."""
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(groups.values()):
        row: list[Cell] = [name]
        for metric, known in ids.items():
            chosen = [i for i in known if groups[i] == name]
            for source in (scores, published):
                row.append(float(np.mean([source[i][metric] for i in chosen])) if chosen else None)
        rows.append(tuple(row))
    columns = [group]
    for metric in ids:
        columns += [metric, f"{metric} published"]
    title = f"Means of our scores and of the published scores, by {group}"
    return Table("published_means", title, tuple(columns), rows)


def agreement_tables(scores: Scores, published: ByJudge, *, seed: int) -> list[Table]:
    """Compare how your judges rank systems, with each other and with the published means."""
    measures = ("systems", "Kendall tau-b", "low", "high", "Spearman rho")
    note = "With 95 % bootstrap intervals of tau over clips."
    tables = []
    rows = _among_judges(scores, seed)
    columns: tuple[str, ...]
    if rows:
        columns = ("judge", "judge 2", *measures)
        title = "Agreement of judges by mean HM-CF"
        tables.append(Table("agreement", title, columns, rows, note))
    rows = _with_published(scores, published, seed)
    if rows:
        columns = ("judge", "score", "published judge", *measures)
        title = "Agreement with the published means of HM-CF"
        note += " The published means are not resampled, because they have no clips."
        tables.append(Table("published", title, columns, rows, note))
    return tables


def _among_judges(scores: Scores, seed: int) -> list[tuple[Cell, ...]]:
    """Return a row for each two judges."""
    rows: list[tuple[Cell, ...]] = []
    for first, second in combinations(scores, 2):
        a = np.array(list(scores[first]["hm_cf"].values()))
        b = np.array(list(scores[second]["hm_cf"].values()))
        rows.append((first, second, len(a), *_rank_agreement(a, b, seed)))
    return rows


def _with_published(scores: Scores, published: ByJudge, seed: int) -> list[tuple[Cell, ...]]:
    """Return a row for each judge, published judge and score, over the systems of both."""
    theirs: dict[str, dict[str, float]] = {}
    for judge, by_system in published.items():
        theirs[judge] = {system: means.hm_cf for system, means in by_system.items()}
    theirs[ALL] = {place.system: -float(place.rank) for place in leaderboard(published, {})}
    rows: list[tuple[Cell, ...]] = []
    for judge, by_score in scores.items():
        for other, means in theirs.items():
            for name in COMPARED:
                systems = [system for system in by_score[name] if system in means]
                if len(systems) > 1:
                    a = np.array([by_score[name][system] for system in systems])
                    b = np.array([means[system] for system in systems])
                    agreed = _rank_agreement(a, b, seed)
                    rows.append((judge, LABELS[name], other, len(systems), *agreed))
    return rows


def _rank_agreement(first: Values, second: Values, seed: int) -> tuple[float, ...]:
    """Return tau, its interval (low, high) and rho of two sides.

    Each side holds scores `(systems, clips)` or means `(systems,)`.
    """
    a, b = statistics.means_of(first), statistics.means_of(second)
    low, high = statistics.kendall_interval(first, second, seed=seed)
    return statistics.kendall(a, b), low, high, statistics.spearman(a, b)
