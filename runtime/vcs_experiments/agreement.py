"""Our scores compared with the published ones of the same pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.metrics.scoring import Metrics, ScoresById
from vcs_runtime.comparing.tables import Cell, Table


def agreement(
    groups: Mapping[str, str], scores: ScoresById, published: ScoresById, metrics: Metrics, group: str
) -> list[Table]:
    """Compare our scores with published ones, over the metrics that both have."""
    rows: list[tuple[Cell, ...]] = []
    common = [metric for metric in metrics.columns if any(metric in own for own in published.values())]
    ids = {metric: [i for i in groups if metric in published.get(i, ())] for metric in common}
    for metric in common:
        ours, theirs = (np.array([source[i][metric] for i in ids[metric]]) for source in (scores, published))
        # Python's `round` is exact; NumPy's multiplies first.
        rounded = np.array([round(value, 3) for value in ours.tolist()])
        off = float(np.abs(rounded - theirs).max()) if len(ours) else float("nan")
        rho, tau = statistics.spearman(ours, theirs), statistics.kendall(ours, theirs)
        rows.append((metric, len(ours), int((rounded == theirs).sum()), off, rho, tau))
    columns = ("metric", "pairs", "equal to 3 decimals", "largest difference", "Spearman", "Kendall tau-b")
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
        Table("published_means", f"Means of ours and of the published scores, by {group}", names, rows),
    ]
