"""Parts of a document, the pages that they fill, and figures of one part (extra `report`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from vcs_runtime.report.sheet import (
    HEIGHT,
    MARGIN,
    PAGE,
    PITCH,
    SIZE,
    SOFT,
    STYLE,
    WIDTH,
    Area,
    Cell,
    length,
    shorten,
    wrap,
)
from vcs_runtime.util.atomic import file_errors, write_whole
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.printable import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[tuple[str, ...]]

_HEAD, _GAP = 0.24, 0.28  # inches of a heading, and between two parts
_TITLE: Final = 11.0  # size of a heading in points
_FEWEST = 4  # lines of a table that stay together
_EDGE: Final = 0.15  # inches around a figure of one part
_ENDLESS: Final = 1e6  # inches of a figure of any height


class Block(NamedTuple):
    """A drawing on one page, with its height in inches."""

    height: float
    draw: Callable[[Area], None]


class Part(Protocol):
    """A part of a document. Its title is also its entry of the contents; "" for neither."""

    @property
    def title(self) -> str:
        """Return the heading."""

    def split(self, room: float) -> tuple[Block | None, Part | None]:
        """Divide the part: a block that fits into `room` inches, and the rest for the next page."""


@dataclass(frozen=True)
class View:
    """A part that stays on one page."""

    title: str
    caption: str
    height: float
    draw: Callable[[Area], None]

    def split(self, room: float) -> tuple[Block | None, Part | None]:
        """Return the whole part if it fits."""
        top = _head_height(self.title, self.caption)

        def draw(area: Area) -> None:
            _draw_head(area, self.title, self.caption)
            self.draw(area.inner(0, top, height=self.height))

        block = Block(top + self.height, draw)
        return (block, None) if block.height <= room else (None, self)


@dataclass(frozen=True)
class Table:
    """A table, which may continue on the next page.

    A row with text in its first cell alone is a subheading. A row whose first cell is empty stays
    on the page of the row before it.
    """

    title: str
    caption: str
    head: Sequence[str]
    at: Sequence[float]
    rows: Rows
    marks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    continued: bool = False

    def split(self, room: float) -> tuple[Block | None, Part | None]:
        """Return as many rows as fit, and a table of the others."""
        title = f"{self.title} (continued)" if self.continued and self.title else self.title
        caption = "" if self.continued else self.caption
        top = _head_height(title, caption)
        head_lines = 1 if any(self.head) else 0
        lines = int((room - top + 1e-6) // PITCH) - head_lines
        if lines < min(_FEWEST, len(self.rows)):
            return None, self
        end = len(self.rows) if lines >= len(self.rows) else last_break(self.rows, lines)
        rows = self.rows[:end]
        height = top + PITCH * (len(rows) + head_lines)

        def draw(area: Area) -> None:
            _draw_head(area, title, caption)
            self._draw_rows(area.inner(0, top), rows)

        block = Block(height, draw)
        if end == len(self.rows):
            return block, None
        return block, replace(self, caption="", rows=self.rows[end:], continued=True)

    def _draw_rows(self, area: Area, rows: Rows) -> None:
        lefts = [area.width * at for at in self.at]
        y = PITCH * 0.75
        if any(self.head):
            area.write(((x, y, name) for x, name in zip(lefts, self.head, strict=True)), SIZE, SOFT)
            area.rule(y + PITCH * 0.3)
            y += PITCH
        plain: list[Cell] = []
        bold: list[Cell] = []
        marked: dict[str, list[Cell]] = {}
        for number, row in enumerate(rows):
            is_heading = bool(row[0]) and not any(row[1:]) and len(row) > 2
            cells = bold if is_heading else plain
            baseline = y + number * PITCH
            for x, text in zip(lefts, row, strict=True):
                left = x
                if text in self.marks:
                    glyph, colour = self.marks[text]
                    marked.setdefault(colour, []).append((x, baseline, glyph))
                    left += 0.13
                cells.append((left, baseline, text))
        area.write(plain)
        area.write(bold, bold=True)
        for colour, glyphs in marked.items():
            area.write(glyphs, colour=colour)


def last_break(rows: Rows, lines: int) -> int:
    """Return the number of lines, at most `lines`, after which a table can be divided.

    The lines of a row stay together, and so do a subheading and the row below it.
    """
    for end in range(lines, 0, -1):
        begins_row = bool(rows[end][0])
        follows_subheading = not any(rows[end - 1][1:])
        if begins_row and not follows_subheading:
            return end
    return lines  # one row fills the page


def _head_height(title: str, caption: str) -> float:
    if not (title or caption):
        return 0.0
    title_height = _HEAD if title else 0.0
    return title_height + PITCH * len(_caption_lines(caption)) + 0.06


def _caption_lines(caption: str) -> list[str]:
    return wrap(caption, WIDTH, 7.5) if caption else []


def _draw_head(area: Area, title: str, caption: str) -> None:
    area.write([(0, 0.14, title)], _TITLE, bold=True)
    top = _HEAD if title else 0.0
    lines = enumerate(_caption_lines(caption))
    area.write(((0, top + (i + 0.6) * PITCH, line) for i, line in lines), 7.5, SOFT)


def alone(*parts: Part) -> Figure:
    """Return a figure that holds these parts, one below the other, and nothing else."""
    blocks = []
    for part in parts:
        block, _ = part.split(_ENDLESS)
        assert block is not None
        blocks.append(block)
    return _figure(*blocks)


def alone_pages(part: Part) -> list[Figure]:
    """Return a part as figures that are at most as high as a page."""
    figures: list[Figure] = []
    rest: Part | None = part
    while rest is not None:
        block, rest = rest.split(HEIGHT)
        assert block is not None
        figures.append(_figure(block))
    return figures


def _figure(*blocks: Block) -> Figure:
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        height = sum(block.height for block in blocks) + _EDGE * (len(blocks) + 1)
        figure = Figure(figsize=(WIDTH + 2 * _EDGE, height))
        top = _EDGE
        for block in blocks:
            block.draw(Area(figure, _EDGE, top, WIDTH, block.height))
            top += block.height + _EDGE
        figure.draw_without_rendering()  # ticks take the style only when they are drawn
        return figure


class Placed(NamedTuple):
    """A block on a page, `top` inches below the margin."""

    top: float
    block: Block


@dataclass(frozen=True)
class Document:
    """Blocks on pages, with a title and the entries of the contents."""

    title: str
    pages: list[list[Placed]]
    entries: list[tuple[str, int]]


def compose(title: str, front: Sequence[Part], body: Sequence[Part]) -> Document:
    """Divide parts into pages: `front` before the contents, `body` on new pages, listed there."""
    entries: list[tuple[str, int]] = []
    listed = [part.title for part in body if part.title]
    contents = View(
        "Contents", "", PITCH * 1.12 * len(listed), lambda area: _draw_contents(area, entries)
    )
    pages = _fill([*front, contents], [], [[]])
    if len(pages) == 1 or len(pages[-1]) > 1:  # contents alone share their page with the body
        pages.append([])
    _fill(body, entries, pages)
    return Document(title, pages, entries)


def _fill(
    parts: Sequence[Part], entries: list[tuple[str, int]], pages: list[list[Placed]]
) -> list[list[Placed]]:
    """Put parts on the last page and on new ones, and their titles into the contents."""
    used = sum(placed.block.height + _GAP for placed in pages[-1])
    for part in parts:
        rest: Part | None = part
        while rest is not None:
            block, remainder = rest.split(HEIGHT - used)
            if block is None:
                assert pages[-1], f"{part.title!r} is higher than a page"
                pages.append([])
                used = 0.0
                continue
            if rest is part and part.title:
                entries.append((part.title, len(pages)))
            pages[-1].append(Placed(used, block))
            used += block.height + _GAP
            rest = remainder
    return pages


def _draw_contents(area: Area, entries: list[tuple[str, int]]) -> None:
    dot = length(" .")
    for i, (name, number) in enumerate(entries):
        y = PITCH * (1.12 * i + 0.8)
        right = area.width - length(str(number))
        dots = int((right - length(name) - 0.12) / dot)
        area.write([(0, y, name), (right, y, str(number))])
        area.write([(right - 0.06 - dots * dot, y, " ." * dots)], colour=SOFT)


def drawn_pages(document: Document) -> Iterator[Figure]:
    """Yield the pages of a document, each as a figure of the size of the page."""
    import matplotlib
    from matplotlib.figure import Figure

    count = len(document.pages)
    for number, placed in enumerate(document.pages, 1):
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=PAGE)
            for top, block in placed:
                block.draw(Area(figure, MARGIN, MARGIN + top, WIDTH, block.height))
            footer = Area(figure, MARGIN, PAGE[1] - MARGIN, WIDTH, MARGIN)
            _draw_footer(footer, document.title, f"{number} of {count}")
        yield figure


def _draw_footer(area: Area, title: str, place: str) -> None:
    right = area.width - length(place, 7)
    area.rule(0.18)
    area.write([(0, 0.36, shorten(title, right - 0.3, 7)), (right, 0.36, place)], 7, SOFT)


def write_document(document: Document, path: Path) -> None:
    """Write a document to a PDF file.

    Raises InputError, or MissingExtraError without matplotlib.
    """
    require_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_pdf import PdfPages

    # The file itself holds no time: the same pair gives the same bytes.
    metadata = {"Title": printable(document.title), "CreationDate": None}
    # In memory first: after an error of the disk, PdfPages would raise a second, unrelated error.
    pages = io.BytesIO()
    with matplotlib.rc_context(STYLE), PdfPages(pages, metadata=metadata) as pdf:
        for figure in drawn_pages(document):
            pdf.savefig(figure)
    with file_errors(path):
        write_whole(path, pages.getvalue())
