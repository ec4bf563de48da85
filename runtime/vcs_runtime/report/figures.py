"""Figures for papers and talks (extra `report`): of a pair from `Explanation`, and of systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vcs_runtime.report import pair_tables, views
from vcs_runtime.report.flow import alone, alone_pages
from vcs_runtime.report.sheet import BLUE, SOFT, STYLE, WIDTH, printable
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.util.figures import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pair(e: Explanation) -> Figure:
    """Show the scores of a pair, what pulled VCS down, and the similarity matrix."""
    return alone(views.key_figures(e), views.costs(e), views.similarity(e))


def systems(means: Mapping[str, Mapping[str, Sequence[float]]], about: str) -> Figure:
    """Show mean and interval of every system by the names of scores, the first system on top."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    names = [*means]
    scores = [*means[names[0]]]
    rows = range(len(names))[::-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.1 + 0.28 * len(names)), layout="constrained")
        panels = figure.subplots(1, len(scores), sharey=True, squeeze=False)[0]
        for axes, score in zip(panels, scores, strict=True):
            for row, name in zip(rows, names, strict=True):
                mean, low, high = means[name][score]
                axes.plot([low, high], [row, row], color=SOFT, lw=2)
                axes.plot(mean, row, "o", color=BLUE, ms=5)
            # One axis for all, and for the margin from -1.
            least = -1.04 if score.startswith("margin") else -0.04
            axes.set(xlim=(least, 1.04), ylim=(-0.6, len(names) - 0.4))
            axes.set_title(LABELS[score], fontsize=9)
            axes.grid(axis="x", lw=0.4)
        panels[0].set_yticks([*rows], [printable(name) for name in names])
        figure.supxlabel(about, fontsize=7, color=SOFT)
        figure.draw_without_rendering()
    return figure


def summary(e: Explanation) -> Figure:
    """Explain the value of VCS, and show all scores and the cost of each part."""
    return alone(views.summary(e))


def configuration(e: Explanation) -> Figure:
    """Show how the pair was scored: parameters, counts, thresholds, signature."""
    return alone(pair_tables.configuration(e))


def similarity(e: Explanation) -> Figure:
    """Show the similarity matrix with the matches of both directions."""
    return alone(views.similarity(e))


def windows(e: Explanation) -> Figure:
    """Show the mapping windows of both directions."""
    return alone(views.windows(e))


def las(e: Explanation) -> Figure:
    """Show the similarity of every chunk's match, and the threshold of support."""
    return alone(views.las(e))


def nas_d(e: Explanation) -> Figure:
    """Show matches against windows, and the penalty of each chunk."""
    return alone(views.nas_d(e))


def nas_l(e: Explanation) -> Figure:
    """Show both narrative paths with floor and ceiling band."""
    return alone(views.nas_l(e))


def regularizer(e: Explanation) -> Figure:
    """Show the part of the grid that the windows cover, and the resulting regulariser."""
    return alone(views.regularizer(e))


def chunks(e: Explanation, name: str) -> list[Figure]:
    """Show a text chunk by chunk, on as many pages as needed.

    `name` is "reference" or "generated".
    """
    return alone_pages(pair_tables.chunks(e, name))


def matches(e: Explanation, name: str) -> Figure:
    """Show the match of every chunk of a text, in one table of any length.

    `name` is "reference" or "generated".
    """
    return alone(pair_tables.matches(e, name))


def match_summary(e: Explanation) -> Figure:
    """Count the chunks of both texts by their verdicts, and by why their matches were chosen."""
    return alone(pair_tables.match_summary(e))


def steps(e: Explanation, name: str) -> list[Figure]:
    """Show NAS-L of a text step by step, on as many pages as needed.

    `name` is "reference" or "generated".
    """
    return alone_pages(pair_tables.steps(e, name))
