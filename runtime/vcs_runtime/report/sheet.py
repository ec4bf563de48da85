"""Figures measured in inches: areas, lines of text and axes (extra `report`).

There is no layout engine: every place is known before anything is drawn, so no text is laid out
twice. Texts are drawn literally, not as mathematical notation. A character that the font lacks
becomes a replacement mark.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from vcs_runtime.util.figures import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE: Final = "#0072b2"
GREEN: Final = "#009e73"
ORANGE: Final = "#e69f00"
RED: Final = "#d55e00"
SKY: Final = "#56b4e9"
PINK: Final = "#cc79a7"
INK: Final = "#1b1f24"
SOFT: Final = "#5b636d"
WINDOW: Final = "#c9ced4"
LINE: Final = "#d5d9de"
#: Settings of matplotlib while a figure is drawn, and while it is written.
STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": SOFT,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlepad": 4,
    "pdf.fonttype": 42,
}
#: Size of a page (A4), its margins, and the space between them, in inches.
PAGE: Final = (8.27, 11.69)
MARGIN: Final = 0.8
WIDTH: Final = PAGE[0] - 2 * MARGIN
HEIGHT: Final = PAGE[1] - 2 * MARGIN
#: Size of letters in points, and the distance of two lines in inches.
SIZE: Final = 8.0
PITCH: Final = 0.155

Cell = tuple[float, float, str]


@dataclass(frozen=True)
class Area:
    """A rectangle of a figure, in inches. Places in it are inches from its upper left corner."""

    figure: Figure
    left: float
    top: float
    width: float
    height: float

    def inner(self, x: float, y: float, width: float = 0.0, height: float = 0.0) -> Area:
        """Return a part of the area; without a size, everything to the right and below."""
        return Area(
            self.figure,
            self.left + x,
            self.top + y,
            width or self.width - x,
            height or self.height - y,
        )

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Return axes; their labels lie outside of the given rectangle."""
        across, down = self.figure.get_size_inches()
        box = (
            (self.left + x) / across,
            1 - (self.top + y + height) / down,
            width / across,
            height / down,
        )
        return self.figure.add_axes(box)

    def write(
        self, cells: Iterable[Cell], size: float = SIZE, colour: str = INK, bold: bool = False
    ) -> None:
        """Draw lines of text with letters of `size` points.

        The place of each line is `(right, down to the baseline)`, in inches.
        """
        written = [(self.left + x, self.top + y, printable(text)) for x, y, text in cells if text]
        if written:
            words = _words()(written, size, colour, bold)
            words.box = (self.left, self.top, self.width, self.height)
            self.figure.add_artist(words)

    def rule(self, y: float, colour: str = LINE) -> None:
        """Draw a thin line across the area."""
        from matplotlib.lines import Line2D

        across, down = self.figure.get_size_inches()
        xs = self.left / across, (self.left + self.width) / across
        height = 1 - (self.top + y) / down
        self.figure.add_artist(Line2D(xs, (height, height), color=colour, lw=0.6))


@functools.cache
def _words() -> Any:
    """Make the artist class that draws lines of text.

    `matplotlib.text.Text` would compute the layout of each line.
    """
    from matplotlib.artist import Artist
    from matplotlib.font_manager import FontProperties
    from matplotlib.transforms import Bbox

    class Words(Artist):
        box = (0.0, 0.0, 0.0, 0.0)

        def __init__(self, cells: Sequence[Cell], size: float, colour: str, bold: bool) -> None:
            super().__init__()
            self.cells, self.colour = cells, colour
            self.font = FontProperties(
                family="DejaVu Sans", weight="bold" if bold else "normal", size=size
            )

        def get_text(self) -> str:
            return "\n".join(text for _, _, text in self.cells)

        def get_window_extent(self, renderer: Any = None) -> Any:
            figure: Any = self.get_figure()
            left, top, width, height = (figure.dpi * inches for inches in self.box)
            return Bbox.from_bounds(left, figure.bbox.height - top - height, width, height)

        def draw(self, renderer: Any) -> None:
            figure: Any = self.get_figure()
            brush = renderer.new_gc()
            brush.set_foreground(self.colour)
            for x, y, text in self.cells:
                down = y * figure.dpi if renderer.flipy() else figure.bbox.height - y * figure.dpi
                renderer.draw_text(brush, x * figure.dpi, down, text, self.font, 0)
            brush.restore()

    return Words


def printable(text: str) -> str:
    """Return `text` with U+FFFD for each character that is unprintable or not in the font.

    Newlines stay.
    """
    glyphs = _glyphs()

    def shown(character: str) -> str:
        if character == "\n" or (ord(character) in glyphs and character.isprintable()):
            return character
        return "\ufffd"

    return "".join(map(shown, text))


@functools.cache
def _glyphs() -> frozenset[int]:
    require_matplotlib()
    from matplotlib.font_manager import findfont, get_font

    plain = get_font(findfont("DejaVu Sans"))
    bold = get_font(findfont("DejaVu Sans:bold"))
    return frozenset(plain.get_charmap()) & frozenset(bold.get_charmap())


def length(text: str, size: float = SIZE) -> float:
    """Return the length of a printable text in inches; kerning is not counted."""
    return sum(map(_advance, text)) * size / 7200


@functools.cache
def _advance(character: str) -> float:
    """Return the width of a character in points, at a size of 100 points."""
    font = _font()
    return float(font.load_char(ord(character)).linearHoriAdvance) / 65536


@functools.cache
def _font() -> Any:
    require_matplotlib()
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    font = FT2Font(findfont("DejaVu Sans"))  # not matplotlib's cached one, because the size is set
    font.set_size(100, 72)
    return font


def wrap(text: str, width: float, size: float = SIZE) -> list[str]:
    """Divide a text into printable lines, at least one, of `width` inches; divide longer words."""
    lines = [""]
    used, space = 0.0, length(" ", size)
    for word in printable(" ".join(text.split())).split(" "):
        long = length(word, size)
        if lines[-1] and used + space + long <= width:
            lines[-1] += " " + word
            used += space + long
            continue
        if lines[-1]:
            lines.append("")
        lines[-1], used = word, long
        while used > width and len(lines[-1]) > 1:
            cut = _fitting(lines[-1], width, size)
            lines[-1:] = [lines[-1][:cut], lines[-1][cut:]]
            used = length(lines[-1], size)
    return lines


def _fitting(word: str, width: float, size: float) -> int:
    """Count the characters of a word that fit into a line, at least one."""
    used = 0.0
    for i, character in enumerate(word):
        used += length(character, size)
        if used > width:
            return max(1, i)
    return len(word)


def shorten(text: str, width: float, size: float = SIZE) -> str:
    """Return a printable text on one line that fits `width` inches.

    A longer text is cut and ends with an ellipsis.
    """
    text = printable(" ".join(text.split()))  # on one line
    if length(text, size) <= width:
        return text
    return text[: _fitting(text, width - length("…", size), size)] + "…"
