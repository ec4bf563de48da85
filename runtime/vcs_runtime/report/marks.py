"""Marks of verdicts, each with a distinct colour and shape, and legends (extra `report`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.report.sheet import BLUE, GREEN, ORANGE, PINK, PITCH, RED, WIDTH, Area, length
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.verdicts import (
    COVERED,
    IN_PLACE,
    MISSING,
    MOVED,
    REPEATED,
    SHIFTED,
    UNSUPPORTED,
    Chunk,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Entry = tuple[str, str, str]  # mark, colour and meaning

#: Colour of each verdict, its marker in figures, and the same mark as a letter.
VERDICT_MARKS: Final = {
    IN_PLACE: (BLUE, "o", "●"),
    COVERED: (BLUE, "P", "✚"),
    SHIFTED: (GREEN, ">", "▶"),
    MOVED: (ORANGE, "D", "◆"),
    UNSUPPORTED: (RED, "X", "✖"),
    MISSING: (RED, "v", "▼"),
    REPEATED: (PINK, "s", "■"),
}
#: Maximum number of chunks with large marks; more of them would hide each other.
MANY: Final = 60
_SMALL = 7.5  # size of a legend in points
_APART = 0.16  # inches between the entries of a legend


def draw_marks(axes: Axes, chunks: tuple[Chunk, ...], y: npt.NDArray[Any]) -> None:
    """Draw the chunks at the heights `y`, each verdict with its colour and marker."""
    for verdict, (colour, marker, _) in VERDICT_MARKS.items():
        places = np.array([i for i, chunk in enumerate(chunks) if chunk.verdict == verdict], int)
        if len(places):
            size = 20 if len(chunks) <= MANY else 7
            axes.scatter(
                places + 1,
                y[places],
                c=colour,
                marker=marker,
                s=size,
                lw=0,
                zorder=3,
                clip_on=False,
            )


def verdict_legend(e: Explanation) -> list[Entry]:
    """Return the entries of the verdicts that occur."""
    shown = {chunk.verdict for chunk in (*e.generated, *e.reference)}
    return [
        (mark, colour, name) for name, (colour, _, mark) in VERDICT_MARKS.items() if name in shown
    ]


def draw_legend(area: Area, y: float, entries: Sequence[Entry]) -> None:
    """Write marks and their meanings, in lines as wide as the area."""
    for line in _legend_lines(entries):
        x = 0.0
        for mark, colour, name in line:
            area.write([(x, y, mark)], _SMALL, colour)
            x += length(f"{mark} ", _SMALL)
            area.write([(x, y, name)], _SMALL)
            x += length(name, _SMALL) + _APART
        y += PITCH


def _legend_lines(entries: Sequence[Entry]) -> list[list[Entry]]:
    lines: list[list[Entry]] = [[]]
    x = 0.0
    for mark, colour, name in entries:
        long = length(f"{mark} {name}", _SMALL)
        if lines[-1] and x + long > WIDTH:
            lines.append([])
            x = 0.0
        lines[-1].append((mark, colour, name))
        x += long + _APART
    return lines


def legend_height(entries: Sequence[Entry]) -> float:
    """Return the height of a legend in inches."""
    return PITCH * len(_legend_lines(entries)) if entries else 0.0
