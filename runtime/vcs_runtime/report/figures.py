"""Figures of a pair for papers and talks, each a function from `Explanation` (extra `report`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcs_runtime.report import pair_tables, views
from vcs_runtime.report.flow import alone, alone_pages
from vcs_runtime.scoring.explanation import Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
