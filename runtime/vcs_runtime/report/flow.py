"""Parts of a document, the pages that they fill, and figures of one part (extra `report`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
_EDGE: Final = 0.15  # inches around a part that is a figure of its own
_ENDLESS: Final = 1e6  # inches of a figure of any height


class Block(NamedTuple):
    """What stands on one page: its height in inches, and how it is drawn."""

    height: float
    draw: Callable[[Area], None]


class Part(Protocol):
    """A part of a document. Its title is also its entry of the contents; "" for neither."""

    @property
    def title(self) -> str:
        """Return the heading."""

    def split(self, room: float) -> tuple[Block | None, Part | None]:
        """Return what fits into `room` inches of a page, and what is left for the next one."""


@dataclass(frozen=True)
class View:
    """A part that stays on one page."""

    title: str
    caption: str
    height: float
    draw: Callable[[Area], None]

    def split(self, room: float) -> tuple[Block | None, Part | None]:
        """Return the whole if it fits."""
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
        lines = int((room - top + 1e-6) // PITCH) - any(self.head)
        if lines < min(_FEWEST, len(self.rows)):
            return None, self
        end = len(self.rows) if lines >= len(self.rows) else last_break(self.rows, lines)
        rows = self.rows[:end]
        height = top + PITCH * (len(rows) + bool(any(self.head)))

        def draw(area: Area) -> None:
            _draw_head(area, title, caption)
            self._draw_rows(area.inner(0, top), rows)

        rest = Table(self.title, "", self.head, self.at, self.rows[end:], self.marks, True)
        return Block(height, draw), rest if end < len(self.rows) else None

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
            heading = bool(row[0]) and not any(row[1:]) and len(row) > 2
            for x, text in zip(lefts, row, strict=True):
                place = (x, y + number * PITCH, text)
                if text in self.marks:
                    glyph, colour = self.marks[text]
                    marked.setdefault(colour, []).append((x, place[1], glyph))
                    place = (x + 0.13, place[1], text)
                (bold if heading else plain).append(place)
        area.write(plain)
        area.write(bold, bold=True)
        for colour, cells in marked.items():
            area.write(cells, colour=colour)


def last_break(rows: Rows, lines: int) -> int:
    """Return where to divide rows so that the first part has at most `lines` lines.

    The lines of a row stay together, unless one row fills the page.
    """
    for end in range(lines, 0, -1):
        if rows[end][0] and any(rows[end - 1][1:]):  # not below a subheading either
            return end
    return lines  # one row fills the page


def _head_height(title: str, caption: str) -> float:
    return (
        bool(title) * _HEAD + PITCH * len(_caption_lines(caption)) + bool(title or caption) * 0.06
    )


def _caption_lines(caption: str) -> list[str]:
    return wrap(caption, WIDTH, 7.5) if caption else []


def _draw_head(area: Area, title: str, caption: str) -> None:
    area.write([(0, 0.14, title)], _TITLE, bold=True)
    top = bool(title) * _HEAD
    area.write(
        [(0, top + (i + 0.6) * PITCH, line) for i, line in enumerate(_caption_lines(caption))],
        7.5,
        SOFT,
    )


def alone(part: Part) -> Figure:
    """Return a figure that holds one part and nothing else."""
    block, _ = part.split(_ENDLESS)
    assert block is not None
    return _figure(block)


def alone_pages(part: Part) -> list[Figure]:
    """Return a part as figures that are at most as high as a page."""
    figures: list[Figure] = []
    rest: Part | None = part
    while rest is not None:
        block, rest = rest.split(HEIGHT)
        assert block is not None
        figures.append(_figure(block))
    return figures


def _figure(block: Block) -> Figure:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH + 2 * _EDGE, block.height + 2 * _EDGE))
        block.draw(Area(figure, _EDGE, _EDGE, WIDTH, block.height))
        figure.draw_without_rendering()  # ticks take the style only when they are drawn
        return figure


class Placed(NamedTuple):
    """A block on a page, `top` inches below the margin."""

    top: float
    block: Block


@dataclass(frozen=True)
class Document:
    """Pages, and what is on them."""

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
    pages = _fill([*front, contents], [])
    body_pages = _fill(body, entries)
    entries[:] = [(name, number + len(pages)) for name, number in entries]
    return Document(title, [*pages, *body_pages], entries)


def _fill(parts: Sequence[Part], entries: list[tuple[str, int]]) -> list[list[Placed]]:
    pages: list[list[Placed]] = [[]]
    used = 0.0
    for part in parts:
        rest: Part | None = part
        while rest is not None:
            block, left = rest.split(HEIGHT - used)
            if block is None:
                assert pages[-1], f"{part.title!r} is higher than a page"
                pages.append([])
                used = 0.0
                continue
            if rest is part and part.title:
                entries.append((part.title, len(pages)))
            pages[-1].append(Placed(used, block))
            used += block.height + _GAP
            rest = left
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
            _draw_footer(
                Area(figure, MARGIN, PAGE[1] - MARGIN, WIDTH, MARGIN), document.title, number, count
            )
        yield figure


def _draw_footer(area: Area, title: str, number: int, count: int) -> None:
    place = f"{number} of {count}"
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
    # In memory first: after an error of the disk, PdfPages fails once more, with an error of its
    # own.
    pages = io.BytesIO()
    with matplotlib.rc_context(STYLE), PdfPages(pages, metadata=metadata) as pdf:
        for figure in drawn_pages(document):
            pdf.savefig(figure)
    with file_errors(path):
        write_whole(path, pages.getvalue())
