"""The PDF of many pairs: means, distributions, the worst and the best pairs (extra `report`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.report.flow import Document, Part, Rows, Table, View, compose, write_document
from vcs_runtime.report.pair_tables import signature_rows
from vcs_runtime.report.pdf import heading, sentences
from vcs_runtime.report.sheet import BLUE, WIDTH, Area, length, shorten
from vcs_runtime.report.systems import MARKS, Systems
from vcs_runtime.scoring.flags import FLAGS, what_to_report
from vcs_runtime.scoring.score_table import ALL, LABELS

_LISTED: Final = 20  # worst pairs, and as many best pairs
_FAILED: Final = 40  # pairs without scores
_WHOLE: Final = ("vcs", "margin")  # the scores that are drawn
_ROW = 0.3  # inches of an interval
_FIRST: Final = 0.6  # where the columns of five scores begin
_NUMBER, _BETWEEN = 0.33, 0.1  # inches of a score in a table, and between two of them


def _score_columns(systems: Systems) -> list[float]:
    """Return where the columns of the headline scores begin, as shares of the width."""
    if not systems.also:
        return list(map(float, np.linspace(_FIRST, 0.94, len(systems.headline))))
    widths = [max(length(LABELS[name]), _NUMBER) + _BETWEEN for name in systems.headline]
    return [1 - sum(widths[i:]) / WIDTH for i in range(len(widths))]


def _room(systems: Systems) -> float:
    """Return how much of their usual width the columns before the scores have."""
    return _score_columns(systems)[0] / _FIRST


def _at(systems: Systems, *before: float) -> tuple[float, ...]:
    """Return where columns begin, as shares of the width: those `before`, then one for each headline."""
    return (*(at * _room(systems) for at in before), *_score_columns(systems))


def write_overview(systems: Systems, title: str, path: Path) -> None:
    """Write the overview of many pairs to a PDF file: means, distributions, worst and best pairs."""
    write_document(overview_document(systems, title), path)


def overview_document(systems: Systems, title: str) -> Document:
    """Compose the pages of the overview; the first says for how many pairs VCS is 0, and why."""
    several = len(systems.names) > 1
    said = [
        f"{name}: {sentence}" if several else sentence
        for name, summary in zip(systems.names, systems.summaries, strict=True)
        for sentence in summary.counts.sentences()
    ]
    total = sum(summary.total for summary in systems.summaries)
    of = f", of {len(systems.names)} systems" * several
    rule = [what_to_report(systems.counts.zeros, systems.scored)] * bool(systems.scored)
    about = [f"{total} pairs, {systems.scored} with scores{of}", *rule]
    front: list[Part] = [heading(title, about, systems.dated)]
    if said:
        front.append(sentences("Pairs whose VCS is 0", said))
    if mix := systems.about_segmenters:
        front.append(sentences("Segmenters", mix))
    if points := systems.beside_points:
        front.append(sentences("Reference points", points))
    front.append(_means(systems))
    front.append(Table("What the scores mean", "", ("", ""), (0.0, 0.12), _meanings(systems)))
    order = systems.ranked()
    body: list[Part] = [_intervals(systems, name) for name in _WHOLE]
    body += [_distributions(systems, i) for i in range(len(systems.names))]
    body.append(_listed(systems, "Worst pairs", order[:_LISTED]))
    body.append(_listed(systems, "Best pairs", order[::-1][:_LISTED]))
    marks: Rows = [(mark, FLAGS[flag]) for flag, mark in MARKS.items()]
    caption = "Marks of pairs whose scores cannot tell everything."
    body.append(Table("Flags", caption, ("flag", "meaning"), (0.0, 0.16), marks))
    if systems.failed:
        body.append(_failed(systems))
    named = [
        (shorten(n, 0.22 * WIDTH), s.signature) for n, s in zip(systems.names, systems.summaries, strict=True)
    ]
    if several and len({signature for _, signature in named}) == 1:
        named = [(f"all {len(named)}", named[0][1])]
    rows = [row for name, signature in named for row in signature_rows(name, signature)]
    body.append(Table("Signatures", "How the scores came about.", ("system", "scored as"), (0.0, 0.24), rows))
    return compose(title, front, body)


def _meanings(systems: Systems) -> Rows:
    return [(LABELS[name], ALL[name].meaning) for name in systems.headline]


def _intervals(systems: Systems, score: str) -> View:
    scored = [
        (shorten(f"{name} ({summary.scored})", 2.1), statistics[score])
        for name, summary, statistics in zip(
            systems.names, systems.summaries, systems.statistics(), strict=True
        )
        if statistics
    ]
    height = _ROW * max(1, len(scored))

    def draw(area: Area) -> None:
        axes = area.axes(2.3, 0, WIDTH - 2.45, height)
        for i, (_, s) in enumerate(scored):
            spread = [[s.mean - s.low], [s.high - s.mean]]
            axes.errorbar(s.mean, i, xerr=spread, fmt="o", ms=4, color=BLUE, capsize=3)
            axes.annotate(
                f"{s.mean:z.3f}",
                (s.mean, i),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        axes.set(xlabel=LABELS[score], ylim=(len(scored) - 0.4, -0.75), yticks=[])
        area.write((0, _ROW * (i + 0.65), name) for i, (name, _) in enumerate(scored))

    caption = "Mean and its 95 % interval. In brackets: number of pairs with scores."
    return View(f"Mean {LABELS[score]}", caption, height + 0.42, draw)


def _means(systems: Systems) -> Table:
    rows: Rows = []
    room = _room(systems)
    for i, (name, summary) in enumerate(zip(systems.names, systems.summaries, strict=True)):
        counts = summary.counts
        for more, count, statistics in (
            ("", counts.scored, summary.statistics()),
            (", judged pairs", counts.scored - counts.not_judged, systems.judged(i)),
        ):
            if statistics:
                means = (f"{statistics[score].mean:z.3f}" for score in systems.headline)
                rows.append((shorten(name, 0.38 * WIDTH * room) + more, str(count), *means))
    head = ("system", "scored", *(LABELS[name] for name in systems.headline))
    return Table("Means", "", head, _at(systems, 0.0, 0.5), rows)


def _distributions(systems: Systems, system: int) -> View:
    def draw(area: Area) -> None:
        from matplotlib.ticker import MaxNLocator

        width = (WIDTH - 0.3) / 2 - 0.45
        for column, name in enumerate(_WHOLE):
            counts, edges = systems.histogram(system, name)
            axes = area.axes(0.45 + column * (width + 0.75), 0, width, 1.5)
            axes.stairs(counts, edges, fill=True, color=BLUE)
            axes.set(xlabel=LABELS[name], ylabel="pairs", xticks=edges[:: len(counts) // 4])
            axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))

    title = "Distribution" + f" of {shorten(systems.names[system], 4.5, 11)}" * (len(systems.names) > 1)
    return View(title, "", 1.92, draw)


def _listed(systems: Systems, title: str, positions: npt.NDArray[np.int64]) -> Table:
    rows: Rows = []
    room = WIDTH * _room(systems)
    for position in positions:
        pair, system, _, flags, *values = systems.row(int(position))
        scores = dict(zip(systems.shown, values, strict=True))
        name, marks = systems.names[system], ", ".join(MARKS[flag] for flag in flags)
        rows.append((
            shorten(pair, 0.21 * room) or "-", shorten(name, 0.16 * room), shorten(marks, 0.2 * room),
            *(f"{scores[key]:z.3f}" for key in systems.headline),
        ))  # fmt: skip
    head = ("pair", "system", "flags", *(LABELS[name] for name in systems.headline))
    return Table(f"{title}, by margin", "", head, _at(systems, 0.0, 0.22, 0.39), rows)


def _failed(systems: Systems) -> Table:
    listed = [failed[:2] for failed in systems.failed[:_FAILED]]
    rows: Rows = [(shorten(name, 0.22 * WIDTH) or "-", shorten(why, 0.75 * WIDTH)) for name, why in listed]
    if len(systems.failed) > len(listed):
        rows.append(("…", f"{len(systems.failed) - len(listed)} more"))
    return Table("Pairs without scores", "", ("pair", "reason"), (0.0, 0.24), rows)
