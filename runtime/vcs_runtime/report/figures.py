"""Figures for papers and talks, each a function from `Explanation` to a matplotlib Figure (extra `report`).

Colours are from Okabe and Ito's palette and matplotlib's cividis, which colour-blind readers can distinguish.
Each verdict also has a marker of its own. Texts are drawn literally, without mathematics; a character that
the font lacks becomes a replacement mark. Positions count from 1.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vcs_numba import Orientation
from vcs_runtime.report.figure_tables import table
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.scoring.verdicts import (
    COVERED,
    IN_PLACE,
    MISSING,
    MOVED,
    REPEATED,
    SHIFTED,
    UNSUPPORTED,
    Chunk,
    describe_thresholds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _GREEN, _ORANGE, _RED, _SKY, _PINK = "#0072b2", "#009e73", "#e69f00", "#d55e00", "#56b4e9", "#cc79a7"
_GREY, _WINDOW = "#4a5563", "#c9ced4"
#: Colour and marker of each verdict.
_VERDICTS: Final = {
    IN_PLACE: (_BLUE, "o"), COVERED: (_BLUE, "o"), SHIFTED: (_GREEN, ">"), MOVED: (_ORANGE, "D"),
    UNSUPPORTED: (_RED, "X"), MISSING: (_RED, "X"), REPEATED: (_PINK, "s"),
}  # fmt: skip
_COSTS: Final = {
    "gas": _SKY, "las": _GREEN, "nas_d": _ORANGE, "nas_l": _RED, "window_regularizer": _PINK
}  # fmt: skip
_STYLE: Final[Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8, "pdf.fonttype": 42,
}  # fmt: skip
#: Maximum number of chunks with large marks; more of them would hide each other.
_MANY: Final = 60


def _styled(view: Callable[..., Figure]) -> Callable[..., Figure]:
    @functools.wraps(view)
    def styled(*arguments: Any, **options: Any) -> Figure:
        import matplotlib

        with matplotlib.rc_context(_STYLE):
            figure = view(*arguments, **options)
            # Ticks and texts take the style only when they are drawn, so the layout is done here.
            figure.draw_without_rendering()
            return figure

    return styled


@_styled
def summary(e: Explanation) -> Figure:
    """Say why VCS is what it is, and show all scores, and the cost of each part in a bar of length 1."""
    figure, (costs, scores) = _figure(2, size=(8, 6.8), rows=2, ratios=(1, 5))
    why = textwrap.fill(e.sentences["vcs"], 105)
    figure.suptitle(why, x=0.02, ha="left", fontsize=9, parse_math=False)
    left = e.scores.vcs
    costs.barh(0, left, color=_GREY, label=f"VCS {left:.3f}")
    for name, cost in e.costs.items():
        costs.barh(0, cost, left=left, color=_COSTS[name], label=f"{LABELS[name]} cost {cost:.3f}")
        left += cost
    costs.set(xlim=(0, 1), yticks=[])
    costs.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.45))
    names = list(LABELS)
    values = [getattr(e.scores, name) for name in names]
    colours = [next((c for n, c in _COSTS.items() if name.startswith(n)), _GREY) for name in names]
    scores.barh(range(len(names)), values, color=colours)
    for i, value in enumerate(values):
        scores.text(max(value, 0) + 0.01, i, f"{value:.3f}", va="center", fontsize=8)
    scores.set(
        yticks=range(len(names)),
        yticklabels=[LABELS[name] for name in names],
        xlim=(min(0, *values) * 1.02, 1.08),
    )
    scores.invert_yaxis()
    return figure


@_styled
def configuration(e: Explanation) -> Figure:
    """Show how the pair was scored: parameters, counts, thresholds, signature."""
    p, a = e.params, e.alignment
    rows = [
        ("reference chunks", str(a.n_ref)), ("generated chunks", str(a.n_gen)), ("LCT", f"{p.lct:g}"),
        ("context cutoff", f"{p.context_cutoff:g}"), ("context window", f"{p.context_window:g}"),
        ("LCT penalty", p.lct_penalty), ("regulariser", p.regularizer), ("small texts", p.small_text),
        ("cut by", e.result.segmenter or "words"),
        ("thresholds", describe_thresholds(e.thresholds)),
        *(("" if i else "signature", "|".join(part)) for i, part in enumerate(_parts(e.result.signature))),
    ]  # fmt: skip
    return table("Configuration", ("", ""), rows, (0.0, 0.24))


def _parts(signature: str) -> list[list[str]]:
    fields = signature.split("|")
    return [fields[i : i + 4] for i in range(0, len(fields), 4)]


@_styled
def similarity(e: Explanation) -> Figure:
    """Show the similarity matrix with the matches of both directions."""
    n_ref, n_gen = e.similarity.shape
    width = 7.0
    figure, axes = _figure(1, size=(width + 1, float(np.clip(width * n_ref / n_gen, 2.2, 9)) + 0.8))
    image = axes.imshow(
        e.similarity, cmap="cividis", vmin=min(0.0, float(e.similarity.min())), vmax=1, aspect="auto",
        extent=(0.5, n_gen + 0.5, n_ref + 0.5, 0.5), interpolation="nearest",
    )  # fmt: skip
    figure.colorbar(image, ax=axes, label="similarity", fraction=0.04)
    if max(n_ref, n_gen) <= 12:
        for (i, j), value in np.ndenumerate(e.similarity):
            axes.text(
                j + 1, i + 1.38, f"{value:.2f}", ha="center", fontsize=6, color="w" if value < 0.5 else "k"
            )
    mark = float(np.clip(500 / max(n_ref, n_gen), 2, 60))
    axes.scatter(
        np.arange(n_gen) + 1, e.alignment.precision.match + 1, s=mark, c="w", edgecolors="k", linewidths=0.6,
        label="match of a generated chunk",
    )  # fmt: skip
    axes.scatter(
        e.alignment.recall.match + 1, np.arange(n_ref) + 1, s=mark * 3, marker="s", facecolors="none",
        edgecolors=_RED, linewidths=0.9, label="match of a reference chunk",
    )  # fmt: skip
    axes.set(xlabel="generated chunk", ylabel="reference chunk")
    _whole(axes, n_gen, n_ref)
    axes.set_ylim(n_ref + 0.5, 0.5)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure


@_styled
def windows(e: Explanation) -> Figure:
    """Show the mapping windows of both directions."""
    return _two_sides(e, "Mapping windows", lambda axes, chunks, side: None)


@_styled
def nas_l(e: Explanation) -> Figure:
    """Show both narrative paths with floor and ceiling band."""

    def content(axes: Axes, chunks: tuple[Chunk, ...], side: Orientation) -> None:
        x = np.arange(side.x) + 1
        if len(side.floor_path):
            axes.fill_between(x, side.floor_path + 1, side.ceiling_path + 1, color=_SKY, alpha=0.35, lw=0)
            axes.plot(
                x, side.floor_path + 1, color=_BLUE, ls="--", lw=1, label=f"floor {side.floor_length:.2f}"
            )
            axes.plot(
                x,
                side.ceiling_path + 1,
                color=_BLUE,
                ls=":",
                lw=1.2,
                label=f"ceiling {side.ceiling_length:.2f}",
            )
        axes.plot(x, side.match + 1, color="k", lw=0.8, alpha=0.6, label=f"path {side.actual_length:.2f}")
        _marks(axes, chunks)
        axes.set_title(f"{axes.get_title()}: {side.nas_l:.3f}")

    return _two_sides(e, f"NAS-L {e.scores.nas_l:.3f}", content)


@_styled
def nas_d(e: Explanation) -> Figure:
    """Show matches against windows, and the penalty of each chunk."""
    figure, panels = _figure(4, size=(10, 7), rows=2, columns=2, ratios=(2, 1))
    for column, (name, other, chunks, side) in enumerate(_sides(e)):
        mapping, bars = panels[column], panels[column + 2]
        _draw_windows(mapping, side, name, other)
        outside = np.flatnonzero(side.penalty > 0)
        edge = np.clip(side.match[outside], side.window_start[outside], side.window_end[outside] - 1)
        mapping.vlines(outside + 1, edge + 1, side.match[outside] + 1, color=_ORANGE, lw=0.8)
        _marks(mapping, chunks)
        mapping.set_title(f"{mapping.get_title()}: {side.nas_d:.3f}")
        bars.bar(np.arange(side.x) + 1, side.penalty, width=0.8 if side.x <= _MANY else 1.0, color=_ORANGE)
        bars.set(
            xlabel=f"{name} chunk", ylabel="penalty", ylim=(0, max(1.05 * float(side.penalty.max()), 0.05)),
            title=f"{side.total_penalty:.3f} of at most {side.max_penalty:.3f}",
        )  # fmt: skip
        _whole(bars, side.x)
    figure.suptitle(f"NAS-D {e.scores.nas_d:.3f}")
    return figure


@_styled
def las(e: Explanation) -> Figure:
    """Show the similarity of every chunk's match, and the threshold of support."""
    figure, panels = _figure(2, size=(10, 6), rows=2)
    for axes, (name, _, chunks, side) in zip(panels, _sides(e), strict=True):
        x = np.arange(side.x) + 1
        colours = [_VERDICTS[chunk.verdict][0] for chunk in chunks]
        axes.bar(x, side.similarity, width=0.8 if side.x <= _MANY else 1.0, color=colours)
        axes.axhline(side.las, color="k", lw=1, label=f"mean {side.las:.3f}")
        axes.axhline(
            e.thresholds.support, color=_GREY, lw=0.9, ls="--", label=f"support {e.thresholds.support:g}"
        )
        which = "precision" if name == "generated" else "recall"
        axes.set(xlabel=f"{name} chunk", ylabel="similarity", title=f"LAS {which}",
                 ylim=(min(0.0, float(side.similarity.min()) * 1.05), 1.02))  # fmt: skip
        _whole(axes, side.x)
        axes.legend(loc="lower right", facecolor="w", frameon=True, framealpha=0.85)
    figure.suptitle(f"LAS {e.scores.las:.3f}")
    return figure


@_styled
def regularizer(e: Explanation) -> Figure:
    """Show the part of the grid that the windows cover, and the regulariser that follows from it."""
    a = e.alignment
    figure, (grid, bar) = _figure(2, size=(9, 4), columns=2)
    _draw_windows(grid, a.precision if a.n_ref >= a.n_gen else a.recall, *(
        ("generated", "reference") if a.n_ref >= a.n_gen else ("reference", "generated")))  # fmt: skip
    grid.set_title(f"{a.window_area} of {a.grid_area} cells")
    bar.barh([0], [a.window_area / a.grid_area], color=_PINK)
    # The labels have different heights, because in a 2 x 2 grid both are at one half.
    for at, name, height in ((a.min_coverage, "least", 0.62), (0.5, "half", -0.72)):
        bar.axvline(at, color="k", lw=0.9, ls="--")
        bar.text(at, height, f" {name} ", ha="right" if at > 0.9 else "left", fontsize=8)
    bar.set(xlim=(0, 1), ylim=(-0.8, 0.75), yticks=[], xlabel="covered part of the grid",
            title=f"regulariser {a.regularizer:.3f}")  # fmt: skip
    return figure


def _sides(e: Explanation) -> list[tuple[str, str, tuple[Chunk, ...], Orientation]]:
    return [
        ("generated", "reference", e.generated, e.alignment.precision),
        ("reference", "generated", e.reference, e.alignment.recall),
    ]


def _two_sides(
    e: Explanation, title: str, content: Callable[[Axes, tuple[Chunk, ...], Orientation], None]
) -> Figure:
    figure, panels = _figure(2, size=(10, 4.6), columns=2)
    for axes, (name, other, chunks, side) in zip(panels, _sides(e), strict=True):
        _draw_windows(axes, side, name, other)
        content(axes, chunks, side)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.42), ncols=4)
    figure.suptitle(title)
    return figure


def _draw_windows(axes: Axes, side: Orientation, name: str, other: str) -> None:
    x = np.arange(side.x) + 1
    axes.bar(
        x, side.window_end - side.window_start, bottom=side.window_start + 0.5, width=1.0, color=_WINDOW,
        lw=0, label="window",
    )  # fmt: skip
    which = "precision" if name == "generated" else "recall"
    axes.set(xlabel=f"{name} chunk", ylabel=f"{other} chunk", title=which)
    _whole(axes, side.x, side.y)


def _marks(axes: Axes, chunks: tuple[Chunk, ...]) -> None:
    """Draw the matches, each verdict with its colour and marker."""
    for verdict, (colour, marker) in _VERDICTS.items():
        places = [i for i, chunk in enumerate(chunks) if chunk.verdict == verdict]
        if places:
            size = 26 if len(chunks) <= _MANY else 9
            x, y = [i + 1 for i in places], [chunks[i].match + 1 for i in places]
            axes.scatter(x, y, c=colour, marker=marker, s=size, lw=0, zorder=3, label=verdict)


def _whole(axes: Axes, columns: int, rows: int | None = None) -> None:
    """Let axes count chunks from 1, with ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0.5, columns + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if rows is not None:
        axes.set_ylim(0.5, rows + 0.5)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _figure(
    panels: int, *, size: tuple[float, float], rows: int = 1, columns: int = 1, ratios: tuple[float, ...] = ()
) -> tuple[Figure, Any]:
    # `Figure` instead of pyplot: there is no global state, and no display is needed.
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, height_ratios=ratios or None, squeeze=False).ravel()
    return figure, axes[0] if panels == 1 else list(axes)
