"""Reports as PDF: every figure of one pair, or the overview of many (extra `report`)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcs_runtime.report import figure_tables, figures
from vcs_runtime.report.html import shortened
from vcs_runtime.report.systems import SHOWN, Systems
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.util.atomic import unwritable, write_whole
from vcs_runtime.util.figures import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LISTED = 20  # worst pairs, and as many best pairs


def all_figures(e: Explanation) -> Iterator[Figure]:
    """Yield every figure of a pair, in the order of the report."""
    yield figures.summary(e)
    yield figures.configuration(e)
    yield from _pages("chunks", e)
    for view in (figures.similarity, figures.windows):
        yield view(e)
    yield from _pages("best_match", e)
    for view in (figures.las, figures.nas_d, figures.nas_l):
        yield view(e)
    yield from _pages("segments_precision", e)
    yield from _pages("segments_recall", e)
    yield figures.regularizer(e)


def _pages(name: str, e: Explanation) -> Iterator[Figure]:
    view, rows = figure_tables.PAGED[name]
    return (view(e, page) for page in range(figure_tables.pages(rows(e))))


def write_pdf(e: Explanation, path: Path) -> None:
    """Write every figure of a pair to a PDF file.

    Parameters
    ----------
    e
        The explained pair.
    path
        The file to write. An existing file is replaced.

    Raises
    ------
    InputError
        The file cannot be written.
    MissingExtraError
        matplotlib is not installed.
    """
    with _pages_of(path, f"VCS {e.scores.vcs:.3f}") as pdf:
        for figure in all_figures(e):
            pdf.savefig(figure)


def write_overview(systems: Systems, title: str, path: Path) -> None:
    """Write the overview of many pairs to a PDF file: means, distributions, worst and best pairs.

    Parameters
    ----------
    systems
        The scores of the pairs.
    title
        Title of the overview.
    path
        The file to write. An existing file is replaced.

    Raises
    ------
    InputError
        The file cannot be written.
    MissingExtraError
        matplotlib is not installed.
    """
    with _pages_of(path, title) as pdf:
        pdf.savefig(_systems(systems, title))
        for figure in _distributions(systems):
            pdf.savefig(figure)
        index = systems.to_index(title)
        names = [LABELS[name] for name in SHOWN[:6]]
        for heading, rows in (
            ("Worst pairs", index["rows"][:_LISTED]),
            ("Best pairs", index["rows"][::-1][:_LISTED]),
        ):
            lines = [
                (shortened(row[0], 60), index["systems"][row[1]]["name"], *(f"{v:.3f}" for v in row[3:9]))
                for row in rows
            ]
            at = (0.0, 0.36, *np.linspace(0.54, 0.92, 6).tolist())
            pdf.savefig(figure_tables.table(heading, ("pair", "system", *names), lines, at))


def _systems(systems: Systems, title: str) -> Figure:
    from matplotlib.figure import Figure

    scored = [(name, s) for name, s in zip(systems.names, systems.statistics(), strict=True) if s]
    figure = Figure(figsize=(9, 1.6 + 0.35 * len(scored)), layout="constrained")
    axes = figure.subplots()
    for i, (_, statistics) in enumerate(scored):
        s = statistics["vcs"]
        axes.errorbar(
            s.mean, i, xerr=[[s.mean - s.low], [s.high - s.mean]], fmt="o", color="#0072b2", capsize=3
        )
        axes.annotate(
            f"{s.mean:.3f}", (s.mean, i), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    labels = [
        figure_tables.printable(f"{shortened(name, 40)} ({systems.summaries[i].scored})")
        for i, (name, _) in enumerate(scored)
    ]
    axes.set_yticks(range(len(scored)), labels, parse_math=False)
    axes.set(xlabel="VCS: mean and its 95 % interval", ylim=(len(scored) - 0.4, -0.6))
    figure.suptitle(figure_tables.printable(title), parse_math=False)
    return figure


def _distributions(systems: Systems) -> Iterator[Figure]:
    from matplotlib.figure import Figure

    for i, name in enumerate(systems.names):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.hist(
            np.clip(systems.values(i, "vcs"), 0, 1), bins=np.linspace(0, 1, 41).tolist(), color="#0072b2"
        )
        axes.set(xlabel="VCS", ylabel="pairs")
        axes.set_title(figure_tables.printable(name), parse_math=False)
        yield figure


@contextmanager
def _pages_of(path: Path, title: str) -> Iterator[Any]:
    require_matplotlib()
    from matplotlib.backends.backend_pdf import PdfPages

    # The file holds no date: the same pair gives the same bytes.
    metadata = {"Title": title, "CreationDate": None}
    # In memory first: after an error of the disk, PdfPages fails once more, with an error of its own.
    pages = io.BytesIO()
    with PdfPages(pages, metadata=metadata) as pdf:
        yield pdf
    with unwritable(path):
        write_whole(path, pages.getvalue())
