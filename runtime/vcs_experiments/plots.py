"""Plots of the experiments, as PNG files without dates: the same data give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vcs_experiments.datasets.texts import Case
from vcs_experiments.leaderboard import ByJudge, Place
from vcs_experiments.metrics.scoring import ScoresById
from vcs_runtime.util.figures import new_figure, save_figure


def plot_all(
    cases: Sequence[Case], scores: ScoresById, published: ScoresById, metric: str, folder: Path
) -> list[Path]:
    """Draw every plot that the data allow into a folder; returns the files."""
    single = [case for case in cases if not case.series]
    files = []
    if any(case.valid is not None for case in single):
        files.append(distribution(single, scores, metric, folder / "distribution.png"))
    if len(single) < len(cases):
        files.append(severity(cases, scores, metric, folder / "severity.png"))
    if any(metric in by_metric for by_metric in published.values()):
        files.append(against_published(single, scores, published, metric, folder / "published.png"))
    return files


def distribution(cases: Sequence[Case], scores: ScoresById, metric: str, path: Path) -> Path:
    """Draw histograms of the scores of valid and of invalid texts."""
    figure, [axes] = new_figure(1)
    bins = np.linspace(0, 1, 41)
    for valid, name, colour in ((True, "valid", "tab:blue"), (False, "invalid", "tab:red")):
        values = [scores[case.id][metric] for case in cases if case.valid is valid]
        axes.hist(values, bins=bins, alpha=0.6, color=colour, label=f"{name} ({len(values)})")
    axes.set(xlabel=metric, ylabel="texts")
    axes.legend()
    return save_figure(figure, path)


def severity(cases: Sequence[Case], scores: ScoresById, metric: str, path: Path) -> Path:
    """Plot the mean score by level, with a panel per corruption and a line per position."""
    groups: dict[str, dict[str, dict[int, list[float]]]] = {}
    for case in cases:
        if case.series:
            kind, position, level = case.series
            by_level = groups.setdefault(kind, {}).setdefault(position, {})
            by_level.setdefault(level, []).append(scores[case.id][metric])
    figure, panels = new_figure(len(groups))
    for axes, (kind, positions) in zip(panels, groups.items(), strict=True):
        for position, by_level in positions.items():
            levels = sorted(by_level)
            axes.plot(
                levels,
                [float(np.mean(by_level[level])) for level in levels],
                marker="o",
                label=position,
            )
        axes.set(title=kind, xlabel="level", ylabel=metric, ylim=(-0.02, 1.02))
        axes.legend()
    return save_figure(figure, path)


def against_published(
    cases: Sequence[Case], scores: ScoresById, published: ScoresById, metric: str, path: Path
) -> Path:
    """Plot our mean and the published mean per kind of rewrite, sorted by the published mean."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        if metric in published.get(case.id, ()):
            groups.setdefault(case.name, []).append(case)
    means: dict[str, list[float]] = {}  # the published one, and ours
    for name, chosen in groups.items():
        theirs = [published[case.id][metric] for case in chosen]
        ours = [scores[case.id][metric] for case in chosen]
        means[name] = [float(np.mean(theirs)), float(np.mean(ours))]
    names = sorted(means, key=lambda name: means[name][0])
    figure, [axes] = new_figure(1, height=1 + 0.22 * len(names))
    for row, name in enumerate(names):
        colour = "tab:blue" if groups[name][0].valid else "tab:red"
        axes.plot(means[name], [row, row], color=colour, linewidth=0.8)
        axes.scatter(means[name][0], row, facecolor="white", edgecolor=colour, zorder=2)
        axes.scatter(means[name][1], row, color=colour, zorder=2)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set(xlabel=f"mean {metric}", xlim=(-0.02, 1.02))
    axes.set_title("filled: computed here; hollow: published; blue: valid", fontsize=9)
    return save_figure(figure, path)


def leaderboard_plot(places: Sequence[Place], means: ByJudge, path: Path) -> Path:
    """Draw the mean HM-CF of each system by each judge, and over judges; the best system on top."""
    figure, [axes] = new_figure(1, height=1.2 + 0.28 * len(places))
    rows = range(len(places))
    axes.scatter(
        [place.mean_hm_cf for place in places], rows, color="black", marker="|", s=120, label="mean"
    )
    for judge, by_system in means.items():
        values = [by_system[place.system].hm_cf for place in places]
        axes.scatter(values, rows, s=18, label=judge)
    axes.set_yticks(
        rows, [f"{place.rank}. {place.name} ({place.borda})" for place in places], fontsize=7
    )
    axes.invert_yaxis()
    axes.set(xlabel="mean HM-CF", title="rank, system and Borda points")
    axes.legend(fontsize=7)
    return save_figure(figure, path)
