"""Views of a pair: functions from `Explanation` to a part of a document or a figure.

The views need the extra `report`.

Colours are from Okabe and Ito's palette and matplotlib's cividis, which colour-blind readers can
distinguish. Each verdict also has a distinct marker. Positions count from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Orientation
from vcs_runtime.report.flow import View
from vcs_runtime.report.marks import (
    MANY,
    VERDICT_MARKS,
    Entry,
    draw_legend,
    draw_marks,
    legend_height,
    verdict_legend,
)
from vcs_runtime.report.sheet import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PINK,
    RED,
    SKY,
    SOFT,
    WIDTH,
    WINDOW,
    Area,
    Cell,
    wrap,
)
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.score_table import ALL, DETAIL, HEADLINE, LABELS, up_to
from vcs_runtime.scoring.verdicts import Chunk

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COSTS: Final = {
    "gas": SKY,
    "las": GREEN,
    "nas_d": ORANGE,
    "nas_l": RED,
    "window_regularizer": PINK,
}
#: Largest numbers of rows and of columns of a matrix whose cells hold numbers.
_NUMBERED: Final = (24, 14)

# In inches: space for labels to the left of axes and below them, the width of one of two panels,
# and the height of a bar of the scores.
_LEFT = 0.45
_BELOW = 0.42
_PANEL = (WIDTH - 0.3) / 2 - 0.45
_ROW = 0.2
_WINDOWS = ("▬", WINDOW, "window")


def key_figures(e: Explanation) -> View:
    """Show the scores of the first line, each with its meaning."""
    names = up_to(HEADLINE, e.result.also)
    width = WIDTH / len(names)
    meanings = {name: wrap(ALL[name].meaning, width - 0.12, 6.5) for name in names}
    size = 17 if width > 1 else 14
    height = 0.62 + 0.13 * max(map(len, meanings.values()))

    def draw(area: Area) -> None:
        for i, (name, lines) in enumerate(meanings.items()):
            cell = area.inner(i * width, 0, width - 0.12)
            cell.rule(0, SOFT)
            cell.write([(0, 0.18, LABELS[name])], 8, SOFT)
            cell.write([(0, 0.45, f"{e.values[name]:z.3f}")], size, bold=not i)
            cell.write([(0, 0.64 + 0.13 * k, line) for k, line in enumerate(lines)], 6.5, SOFT)

    return View("", "", height, draw)


def costs(e: Explanation) -> View:
    """Explain the value of VCS, and show VCS and the cost of each part in a bar of length 1."""
    lines = wrap(f"{e.sentences['vcs']} {e.sentences['loss']}", WIDTH, 9)
    top = len(lines) * 0.175 + 0.08

    def draw(area: Area) -> None:
        area.write([(0, 0.13 + i * 0.175, line) for i, line in enumerate(lines)], 9)
        axes = area.axes(0, top, WIDTH, 0.24)
        # One stacked bar: VCS first, then the cost of each part.
        left = e.scores.vcs
        axes.barh(0, left, color=SOFT)
        for name, cost in e.costs.items():
            axes.barh(0, cost, left=left, color=_COSTS[name], edgecolor="w", lw=0.6)
            left += cost
        axes.set(xlim=(0, 1), ylim=(-0.4, 0.4))
        axes.set_axis_off()
        draw_legend(area, top + 0.4, parts)

    parts = [("■", SOFT, f"VCS {e.scores.vcs:.3f}")]
    parts += [("■", _COSTS[name], f"{LABELS[name]} {cost:z.3f}") for name, cost in e.costs.items()]
    return View("What pulled it down", "", top + 0.3 + legend_height(parts), draw)


def scores(e: Explanation) -> View:
    """Show all scores as bars, with their meanings."""
    names = up_to(DETAIL, e.result.also)
    values = [e.values[name] for name in names]

    def draw(area: Area) -> None:
        axes = area.axes(1.05, 0, 1.9, _ROW * len(names))
        colours = list(map(_colour, names))
        axes.barh(range(len(names)), values, height=0.62, color=colours)
        axes.axvline(0, color=SOFT, lw=0.6)
        axes.set(xlim=(min(0.0, *values), 1), ylim=(len(names) - 0.5, -0.5))
        axes.set_axis_off()
        labels: list[Cell] = []
        numbers: list[Cell] = []
        meanings: list[Cell] = []
        for i, name in enumerate(names):
            baseline = _ROW * (i + 0.5) + 0.04
            labels.append((0, baseline, LABELS[name]))
            numbers.append((3.05, baseline, f"{values[i]:z.3f}"))
            meanings.append((3.5, baseline, ALL[name].meaning))
        area.write(labels)
        area.write(numbers)
        area.write(meanings, 7, SOFT)

    caption = "1 is perfect. The margin and the cosines may be negative."
    if "substitution" in names:
        caption += " For substitution and replaced words, 0 is perfect."
    return View("All scores", caption, _ROW * len(names), draw)


def _colour(score: str) -> str:
    """Return the colour of the part to which a score belongs."""
    for part, colour in _COSTS.items():
        if score.startswith(part):
            return colour
    return SOFT


def summary(e: Explanation) -> View:
    """Explain the value of VCS, and show the cost of each part and all scores."""
    first, second = costs(e), scores(e)

    def draw(area: Area) -> None:
        first.draw(area)
        second.draw(area.inner(0, first.height + 0.15))

    return View("", "", first.height + 0.15 + second.height, draw)


def similarity(e: Explanation) -> View:
    """Show the similarity matrix with the matches of both directions."""
    n_ref, n_gen = e.similarity.shape
    width = min(WIDTH - 1.1, 0.9 * n_gen + 0.3)
    height = float(np.clip(width * n_ref / n_gen, min(2.8, 0.4 + 0.5 * n_ref), 4.9))
    numbered = n_ref <= _NUMBERED[0] and n_gen <= _NUMBERED[1]

    def draw(area: Area) -> None:
        axes = area.axes(_LEFT, 0, width, height)
        # The colours span whole tenths.
        low = np.floor(float(e.similarity.min()) * 10) / 10
        high = np.ceil(float(e.similarity.max()) * 10 + 1e-9) / 10
        image = axes.imshow(
            e.similarity,
            cmap="cividis",
            vmin=low,
            vmax=max(high, low + 0.1),
            aspect="auto",
            extent=(0.5, n_gen + 0.5, n_ref + 0.5, 0.5),
            interpolation="nearest",
        )
        bar = area.axes(_LEFT + width + 0.15, 0, 0.12, height)
        area.figure.colorbar(image, cax=bar, label="similarity")
        bar.tick_params(length=2)
        if numbered:
            _write_numbers(axes, e.similarity, (low + high) / 2)
        _mark_matches(axes, e, numbered)
        axes.set(xlabel=f"generated {e.noun}", ylabel=f"reference {e.noun}")
        _whole(axes, n_gen, n_ref)
        axes.set_ylim(n_ref + 0.5, 0.5)
        draw_legend(
            area,
            height + _BELOW + 0.08,
            [
                ("○", INK, f"match of a generated {e.noun}"),
                ("□", RED, f"match of a reference {e.noun}"),
            ],
        )

    n = e.noun
    caption = (
        f"Cosine of every generated {n} with every {n} of the reference. Lighter cells are more"
        " similar."
    )
    return View(f"Similarity of the {n}s", caption, height + _BELOW + 0.12, draw)


def _write_numbers(axes: Axes, similarity: npt.NDArray[Any], middle: float) -> None:
    """Write the number of each cell, in white where the cell is dark."""
    for (i, j), value in np.ndenumerate(similarity):
        axes.text(
            j + 1,
            i + 1,
            f"{value:z.2f}",
            ha="center",
            va="center",
            fontsize=6,
            color="w" if value < middle else "k",
        )


def _mark_matches(axes: Axes, e: Explanation, numbered: bool) -> None:
    """Mark the matches of both directions, beside the numbers of the cells if there are any."""
    from matplotlib.patches import Rectangle

    n_ref, n_gen = e.similarity.shape
    size = float(np.clip(400 / max(n_ref, n_gen), 2, 14))
    x = np.arange(n_gen) + 1
    axes.scatter(
        x - 0.38 if numbered else x,
        e.alignment.precision.match + 1,
        s=size,
        c="w",
        edgecolors="k",
        linewidths=0.5,
    )
    matches = e.alignment.recall.match
    if numbered:
        for i, j in enumerate(matches.tolist()):
            axes.add_patch(Rectangle((j + 0.53, i + 0.55), 0.94, 0.9, fill=False, ec=RED, lw=0.9))
        return
    axes.scatter(
        matches + 1,
        np.arange(n_ref) + 1,
        s=size * 3,
        marker="s",
        facecolors="none",
        edgecolors=RED,
        linewidths=0.8,
    )


def windows(e: Explanation) -> View:
    """Show the mapping windows of both directions."""
    caption = (
        "The place where each match is expected if both texts tell the story at the same pace."
    )
    return _two_sides(e, "Mapping windows", caption, 1.9)


def nas_l(e: Explanation) -> View:
    """Show both narrative paths with floor and ceiling band."""

    def content(axes: Axes, chunks: tuple[Chunk, ...], side: Orientation) -> None:
        x = np.arange(side.x) + 1
        lengths = f"path {side.actual_length:.2f}"
        if len(side.floor_path):
            axes.fill_between(
                x, side.floor_path + 1, side.ceiling_path + 1, color=SKY, alpha=0.35, lw=0
            )
            axes.plot(x, side.floor_path + 1, color=BLUE, ls="--", lw=1)
            axes.plot(x, side.ceiling_path + 1, color=BLUE, ls=":", lw=1.2)
            lengths += f", ideal {side.floor_length:.2f} to {side.ceiling_length:.2f}"
        axes.plot(x, side.match + 1, color="k", lw=0.8, alpha=0.6)
        draw_marks(axes, chunks, side.match + 1)
        axes.set_title(f"{_which(axes)} {side.nas_l:.3f}: {lengths}", loc="left", y=1.0)

    caption = (
        "The path from match to match. Steps back, and jumps farther than a window allows, lower"
        " the score."
    )
    lines = (
        ("– –", BLUE, "shortest ideal path"),
        ("· · ·", BLUE, "longest ideal path"),
        ("—", INK, "path"),
    )
    return _two_sides(
        e, f"NAS-L {e.scores.nas_l:.3f}: the path of the story", caption, 2.5, content, lines
    )


def nas_d(e: Explanation) -> View:
    """Show matches against windows, and the penalty of each chunk."""
    high, low, between = 2.2, 0.7, 0.72

    def draw(area: Area) -> None:
        for column, (name, other, chunks, side) in enumerate(_sides(e)):
            x = _column(column)
            mapping = area.axes(x, 0.2, _PANEL, high)
            _draw_windows(mapping, e, side, name, other)
            outside = np.flatnonzero(side.penalty > 0)
            edge = np.clip(
                side.match[outside], side.window_start[outside], side.window_end[outside] - 1
            )
            mapping.vlines(outside + 1, edge + 1, side.match[outside] + 1, color=ORANGE, lw=0.8)
            draw_marks(mapping, chunks, side.match + 1)
            mapping.set_title(f"{_which(mapping)} {side.nas_d:.3f}", loc="left", y=1.0)
            bars = area.axes(x, 0.2 + high + between, _PANEL, low)
            bars.bar(np.arange(side.x) + 1, side.penalty, width=_bar_width(side.x), color=ORANGE)
            bars.set(
                xlabel=f"{name} {e.noun}",
                ylabel="penalty",
                ylim=(0, max(1.05 * float(side.penalty.max()), 0.05)),
            )
            bars.set_title(
                f"penalties {side.total_penalty:.3f} of at most {side.max_penalty:.3f}", loc="left"
            )
            _whole(bars, side.x)
        draw_legend(area, below + 0.12, legend)

    legend = [_WINDOWS, *verdict_legend(e)]
    below = 0.2 + high + between + low + _BELOW
    caption = (
        "Each mark is a match. A mark outside the grey window is penalised by its distance, drawn"
        " as a line."
    )
    height = below + legend_height(legend)
    return View(
        f"NAS-D {e.scores.nas_d:.3f}: distance from where {e.noun}s belong", caption, height, draw
    )


def las(e: Explanation) -> View:
    """Show the similarity of every chunk's match, and the threshold of support."""
    panel = 1.35
    step = 0.2 + panel + _BELOW

    def draw(area: Area) -> None:
        for number, (name, _, chunks, side) in enumerate(_sides(e)):
            axes = area.axes(_LEFT, 0.2 + number * step, WIDTH - _LEFT, panel)
            colours = [VERDICT_MARKS[chunk.verdict][0] for chunk in chunks]
            axes.bar(
                np.arange(side.x) + 1, side.similarity, width=_bar_width(side.x), color=colours
            )
            draw_marks(axes, chunks, np.maximum(side.similarity, 0) + 0.06)
            axes.axhline(side.las, color="k", lw=1)
            axes.axhline(e.thresholds.support, color=SOFT, lw=0.9, ls="--")
            low = min(0.0, float(side.similarity.min()) * 1.05)
            axes.set(xlabel=f"{name} {e.noun}", ylabel="similarity", ylim=(low, 1.1))
            which = "precision" if name == "generated" else "recall"
            axes.set_title(
                f"{which} {side.las:z.3f}: {name} {e.noun}s and their matches", loc="left", y=1.0
            )
            _whole(axes, side.x)
        draw_legend(area, 2 * step + 0.12, legend)

    lines = [("—", INK, "mean"), ("– –", SOFT, f"support {e.thresholds.support:g}")]
    legend = [*lines, *verdict_legend(e)]

    caption = (
        f"Similarity of each {e.noun} to its match in the other text. Below the dashed line, a"
        f" {e.noun} is weakly supported or missing."
    )
    return View(
        f"LAS {e.scores.las:z.3f}: local content", caption, 2 * step + legend_height(legend), draw
    )


def regularizer(e: Explanation) -> View:
    """Show the part of the grid that the windows cover, and the resulting regulariser."""
    a = e.alignment
    high = 1.9

    def draw(area: Area) -> None:
        grid = area.axes(_LEFT, 0.2, _PANEL, high)
        bar = area.axes(_column(1), 0.2, _PANEL, high)
        if a.n_ref >= a.n_gen:
            _draw_windows(grid, e, a.precision, "generated", "reference")
        else:
            _draw_windows(grid, e, a.recall, "reference", "generated")
        grid.set_title(
            f"the windows cover {a.window_area} of {a.grid_area} cells", loc="left", y=1.0
        )
        bar.barh([0], [a.window_area / a.grid_area], color=PINK)
        # The labels have different heights, because in a 2 x 2 grid both are at one half.
        for at, name, height in ((a.min_coverage, "least", 0.62), (0.5, "half", -0.72)):
            bar.axvline(at, color="k", lw=0.9, ls="--")
            bar.text(at, height, f" {name} ", ha="right" if at > 0.9 else "left", fontsize=7)
        bar.set(xlim=(0, 1), ylim=(-0.8, 0.75), yticks=[], xlabel="covered part of the grid")
        bar.set_title(f"regulariser {a.regularizer:.3f}", loc="left", y=1.0)

    caption = (
        "The more of the grid the windows cover, the higher any order would score. This part is"
        " subtracted from NAS."
    )
    return View(f"Regulariser {a.regularizer:.3f}", caption, 0.2 + high + _BELOW, draw)


def _sides(e: Explanation) -> list[tuple[str, str, tuple[Chunk, ...], Orientation]]:
    return [
        ("generated", "reference", e.generated, e.alignment.precision),
        ("reference", "generated", e.reference, e.alignment.recall),
    ]


def _two_sides(
    e: Explanation,
    title: str,
    caption: str,
    high: float,
    content: Callable[[Axes, tuple[Chunk, ...], Orientation], None] | None = None,
    lines: Sequence[Entry] = (),
) -> View:
    """Return a view of both directions: their windows, and the content with a legend if any."""

    def draw(area: Area) -> None:
        for column, (name, other, chunks, side) in enumerate(_sides(e)):
            axes = area.axes(_column(column), 0.2, _PANEL, high)
            _draw_windows(axes, e, side, name, other)
            if content:
                content(axes, chunks, side)
        draw_legend(area, 0.2 + high + _BELOW + 0.12, legend)

    legend = [*lines, _WINDOWS, *verdict_legend(e)] if lines else []
    return View(title, caption, 0.2 + high + _BELOW + legend_height(legend), draw)


def _column(number: int) -> float:
    return _LEFT + number * (_LEFT + _PANEL + 0.3)


def _draw_windows(axes: Axes, e: Explanation, side: Orientation, name: str, other: str) -> None:
    x = np.arange(side.x) + 1
    axes.bar(
        x,
        side.window_end - side.window_start,
        bottom=side.window_start + 0.5,
        width=1.0,
        color=WINDOW,
        lw=0,
    )
    axes.set(xlabel=f"{name} {e.noun}", ylabel=f"{other} {e.noun}")
    axes.set_title("precision" if name == "generated" else "recall", loc="left", y=1.0)
    _whole(axes, side.x, side.y)


def _which(axes: Axes) -> str:
    return axes.get_title(loc="left")


def _bar_width(count: int) -> float:
    return 0.8 if count <= MANY else 1.0


def _whole(axes: Axes, columns: int, rows: int | None = None) -> None:
    """Let axes count chunks from 1, with ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.5, columns + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if rows is not None:
        axes.set_ylim(0.5, rows + 0.5)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
