"""Plots of the corruption experiment, as PNG files without dates: the same bytes again (extra `report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vcs_runtime.experiments.datasets import Case
from vcs_runtime.util.figures import new_figure, save_figure

Found = Mapping[str, Mapping[str, float]]


def plot_all(cases: Sequence[Case], found: Found, published: Found, metric: str, folder: Path) -> list[Path]:
    """Every plot that the data allow: distribution, series, means against the published ones."""
    single = [case for case in cases if not case.series]
    made = []
    if any(case.valid is not None for case in single):
        made.append(distribution(single, found, metric, folder / "distribution.png"))
    if len(single) < len(cases):
        made.append(severity(cases, found, metric, folder / "severity.png"))
    if any(metric in scores for scores in published.values()):
        made.append(against_published(single, found, published, metric, folder / "published.png"))
    return made


def distribution(cases: Sequence[Case], found: Found, metric: str, path: Path) -> Path:
    """Histograms of the scores of valid and of invalid texts."""
    figure, [axes] = new_figure(1)
    bins = np.linspace(0, 1, 41)
    for valid, name, colour in ((True, "valid", "tab:blue"), (False, "invalid", "tab:red")):
        values = [found[case.id][metric] for case in cases if case.valid is valid]
        axes.hist(values, bins=bins, alpha=0.6, color=colour, label=f"{name} ({len(values)})")
    axes.set(xlabel=metric, ylabel="texts")
    axes.legend()
    return save_figure(figure, path)


def severity(cases: Sequence[Case], found: Found, metric: str, path: Path) -> Path:
    """The mean score by level, a panel a kind of corruption, a line a position."""
    groups: dict[str, dict[str, dict[int, list[float]]]] = {}
    for case in cases:
        if case.series:
            kind, position, level = case.series
            by_level = groups.setdefault(kind, {}).setdefault(position, {})
            by_level.setdefault(level, []).append(found[case.id][metric])
    figure, panels = new_figure(len(groups))
    for axes, (kind, positions) in zip(panels, groups.items(), strict=True):
        for position, by_level in positions.items():
            levels = sorted(by_level)
            axes.plot(
                levels, [float(np.mean(by_level[level])) for level in levels], marker="o", label=position
            )
        axes.set(title=kind, xlabel="level", ylabel=metric, ylim=(-0.02, 1.02))
        axes.legend()
    return save_figure(figure, path)


def against_published(cases: Sequence[Case], found: Found, published: Found, metric: str, path: Path) -> Path:
    """A row a kind of rewrite, by the published mean: our mean and the published one."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        if metric in published.get(case.id, ()):
            groups.setdefault(case.name, []).append(case)
    means = {
        name: [float(np.mean([source[case.id][metric] for case in chosen])) for source in (published, found)]
        for name, chosen in groups.items()
    }
    names = sorted(means, key=lambda name: means[name][0])
    figure, [axes] = new_figure(1, height=1 + 0.22 * len(names))
    for row, name in enumerate(names):
        colour = "tab:blue" if groups[name][0].valid else "tab:red"
        axes.plot(means[name], [row, row], color=colour, linewidth=0.8)
        axes.scatter(means[name][0], row, facecolor="white", edgecolor=colour, zorder=2)
        axes.scatter(means[name][1], row, color=colour, zorder=2)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set(xlabel=f"mean {metric}", xlim=(-0.02, 1.02))
    axes.set_title("full: here, hollow: published; blue: valid", fontsize=9)
    return save_figure(figure, path)
