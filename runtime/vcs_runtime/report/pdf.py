"""Reports as PDF: every figure of one pair, or the overview of many (extra `report`)."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vcs_runtime.report import figure_tables, figures
from vcs_runtime.report.html import shortened
from vcs_runtime.report.systems import MARKS, SHOWN, Systems
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.flags import FLAGS
from vcs_runtime.scoring.score_table import HEADLINE, LABELS, up_to
from vcs_runtime.util.atomic import unwritable, write_whole
from vcs_runtime.util.figures import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LISTED = 20  # worst pairs, and as many best pairs
_WHOLE = ("vcs", "margin")  # the scores that are drawn
_WIDTH = 160  # characters of a line
_AT = tuple(np.linspace(0.56, 0.92, len(up_to(HEADLINE))).tolist())  # columns of scores


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
    write_figures(all_figures(e), f"VCS {e.scores.vcs:.3f}", path)


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
    write_figures(overview_figures(systems, title), title, path)


def overview_figures(systems: Systems, title: str) -> Iterator[Figure]:
    """Yield the figures of the overview of many pairs; the first says for how many VCS is 0, and why."""
    several = len(systems.names) > 1
    said = [
        f"{name}: {sentence}" if several else sentence
        for name, summary in zip(systems.names, systems.summaries, strict=True)
        for sentence in summary.counts.sentences()
    ]
    if said:
        lines = [(line,) for sentence in said for line in textwrap.wrap(sentence, _WIDTH)]
        yield figure_tables.table(title, ("",), lines, (0.0,))
    for name in _WHOLE:
        yield _intervals(systems, name, title)
    yield _means(systems)
    for i in range(len(systems.names)):
        yield _distributions(systems, i)
    order = systems.ranked()
    yield _listed(systems, "Worst pairs", order[:_LISTED])
    yield _listed(systems, "Best pairs", order[::-1][:_LISTED])
    meanings = [(mark, FLAGS[flag]) for flag, mark in MARKS.items()]
    yield figure_tables.table("Flags", ("flag", "meaning"), meanings, (0.0, 0.16))


def _intervals(systems: Systems, score: str, title: str) -> Figure:
    from matplotlib.figure import Figure

    scored = [(name, s) for name, s in zip(systems.names, systems.statistics(), strict=True) if s]
    figure = Figure(figsize=(9, 1.6 + 0.35 * len(scored)), layout="constrained")
    axes = figure.subplots()
    for i, (_, statistics) in enumerate(scored):
        s = statistics[score]
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
    axes.set(xlabel=f"{LABELS[score]}: mean and its 95 % interval", ylim=(len(scored) - 0.4, -0.6))
    figure.suptitle(figure_tables.printable(title), parse_math=False)
    return figure


def _means(systems: Systems) -> Figure:
    rows = []
    for i, (name, summary) in enumerate(zip(systems.names, systems.summaries, strict=True)):
        counts = summary.counts
        for more, count, statistics in (
            ("", counts.scored, summary.statistics()),
            (", judged pairs", counts.scored - counts.not_judged, systems.judged(i)),
        ):
            if statistics:
                means = (f"{statistics[score].mean:.3f}" for score in up_to(HEADLINE))
                rows.append((shortened(name, 50) + more, str(count), *means))
    head = ("system", "scored", *(LABELS[name] for name in up_to(HEADLINE)))
    return figure_tables.table("Means", head, rows, (0.0, 0.46, *_AT))


def _distributions(systems: Systems, system: int) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(_WHOLE)), _WHOLE, strict=True):
        counts, edges = systems.histogram(system, name)
        axes.stairs(counts, edges, fill=True, color="#0072b2")
        axes.set(xlabel=LABELS[name], ylabel="pairs", xticks=edges[:: len(counts) // 4])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    figure.suptitle(figure_tables.printable(systems.names[system]), parse_math=False)
    return figure


def _listed(systems: Systems, heading: str, positions: npt.NDArray[np.int64]) -> Figure:
    lines = []
    for position in positions:
        pair, system, _, flags, *values = systems.row(int(position))
        scores = dict(zip(SHOWN, values, strict=True))
        name, marks = shortened(systems.names[system], 22), ", ".join(MARKS[flag] for flag in flags)
        lines.append((shortened(pair, 50), name, marks, *(f"{scores[key]:.3f}" for key in up_to(HEADLINE))))
    head = ("pair", "system", "flags", *(LABELS[name] for name in up_to(HEADLINE)))
    return figure_tables.table(f"{heading}, by margin", head, lines, (0.0, 0.28, 0.4, *_AT))


def write_figures(figures: Iterable[Figure], title: str, path: Path) -> None:
    """Write figures to a PDF file, one a page; errors as for `write_pdf`."""
    require_matplotlib()
    from matplotlib.backends.backend_pdf import PdfPages

    # The file holds no date: the same pair gives the same bytes.
    metadata = {"Title": title, "CreationDate": None}
    # In memory first: after an error of the disk, PdfPages fails once more, with an error of its own.
    pages = io.BytesIO()
    with PdfPages(pages, metadata=metadata) as pdf:
        for figure in figures:
            pdf.savefig(figure)
    with unwritable(path):
        write_whole(path, pages.getvalue())
