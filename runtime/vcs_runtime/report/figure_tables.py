"""Tables as figures: chunks, matches, segments. A long table has several pages."""

from __future__ import annotations

import functools
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from vcs_numba import Orientation
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.verdicts import Chunk, position, verdict_counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Lines of a table on a page.
LINES: Final = 46
_WIDTH = 108
_MAX_LINES = 12  # of the text of one chunk

Rows = list[tuple[str, ...]]

#: The columns of the tables of chunks and of matches, and their left edges.
_CHUNKS: Final = ("", "verdict", "chunk")
_CHUNKS_AT: Final = (0.0, 0.05, 0.2)
_MATCHES: Final = ("", "match", "similar", "most similar", "context", "candidates", "place", "chosen as")
_MATCHES_AT: Final = (0.0, 0.08, 0.15, 0.24, 0.38, 0.48, 0.6, 0.86)


def chunks(e: Explanation, page: int = 0) -> Figure:
    """Show both texts, chunk by chunk, with verdicts.

    Parameters
    ----------
    e
        The explained pair.
    page
        Number of the page, counting from 0; there are `pages(chunk_rows(e))`.

    Returns
    -------
    figure
        The page.

    Raises
    ------
    ValueError
        There is no such page.
    """
    return _page("Chunks", _CHUNKS, chunk_rows(e), _CHUNKS_AT, page)


def text_pages(e: Explanation, name: str) -> list[Figure]:
    """Show one of the texts, `name` "reference" or "generated", chunk by chunk on as many pages as needed."""
    rows = _text_rows(name.upper(), getattr(e, name))
    return [_page("Chunks", _CHUNKS, rows, _CHUNKS_AT, page) for page in range(pages(rows))]


def best_match(e: Explanation, page: int = 0) -> Figure:
    """Show the match of every chunk and the reason for it; there are `pages(match_rows(e))` pages."""
    return _page("Best matches", _MATCHES, match_rows(e), _MATCHES_AT, page)


def matches(e: Explanation, name: str) -> Figure:
    """Show the matches of one text's chunks, "reference" or "generated", on one page of any length."""
    return table("Best matches", _MATCHES, _side_rows(e, name), _MATCHES_AT)


def match_summary(e: Explanation) -> Figure:
    """Count the chunks of both texts by their verdicts and by why their matches were chosen."""
    rows: Rows = []
    for name, side in _directions(e).items():
        listed = getattr(e, name)
        rows.append((name, f"{side.x} chunks, mean similarity {side.las:.3f}"))
        rows += [("", f"{count} {verdict}") for verdict, count in verdict_counts(listed).items()]
        rows += [("", f"{n} chosen as {why.replace('_', ' ')}") for why, n in Counter(side.reason).items()]
    return table("Best matches", ("", ""), rows, (0.0, 0.15))


def segments_precision(e: Explanation, page: int = 0) -> Figure:
    """Show NAS-L of the generated text step by step; the rows are `segment_rows(e.alignment.precision)`."""
    return _segments("NAS-L precision", e.alignment.precision, page)


def segments_recall(e: Explanation, page: int = 0) -> Figure:
    """Show NAS-L of the reference step by step; the rows are `segment_rows(e.alignment.recall)`."""
    return _segments("NAS-L recall", e.alignment.recall, page)


#: Tables that may have several pages, and the functions that return their rows.
PAGED: Final[dict[str, tuple[Callable[..., Figure], Callable[[Explanation], Rows]]]] = {
    "chunks": (chunks, lambda e: chunk_rows(e)),
    "best_match": (best_match, lambda e: match_rows(e)),
    "segments_precision": (segments_precision, lambda e: segment_rows(e.alignment.precision)),
    "segments_recall": (segments_recall, lambda e: segment_rows(e.alignment.recall)),
}


def pages(rows: Rows) -> int:
    """Return the number of pages that the rows fill, at least one."""
    return len(page_starts(rows))


def page_starts(rows: Rows) -> list[int]:
    """Return the first row of each page; lines of one chunk (first column empty) stay on one page."""
    starts = [0]
    for i in range(len(rows)):
        if i - starts[-1] == LINES:
            starts.append(next(k for k in range(i, starts[-1], -1) if rows[k][0]))
    return starts


def chunk_rows(e: Explanation) -> Rows:
    """Return the rows of `chunks`."""
    return _text_rows("REFERENCE", e.reference) + _text_rows("GENERATED", e.generated)


def _text_rows(name: str, chunks: Sequence[Chunk]) -> Rows:
    rows: Rows = [(name, "", "")]
    for number, chunk in enumerate(chunks, 1):
        lines = textwrap.wrap(chunk.text[: _WIDTH * _MAX_LINES], _WIDTH) or [""]
        rows.append((str(number), chunk.verdict, lines[0]))
        rows += [("", "", line) for line in lines[1:_MAX_LINES]]
    return rows


def match_rows(e: Explanation) -> Rows:
    """Return the rows of `best_match`."""
    return [row for name in _directions(e) for row in _side_rows(e, name)]


def _directions(e: Explanation) -> dict[str, Orientation]:
    return {"generated": e.alignment.precision, "reference": e.alignment.recall}


def _side_rows(e: Explanation, name: str) -> Rows:
    side = _directions(e)[name]
    return [(name, *[""] * 7), *(_match(i, chunk, side) for i, chunk in enumerate(getattr(e, name)))]


def _match(i: int, chunk: Chunk, side: Orientation) -> tuple[str, ...]:
    candidates = int(side.candidates.offsets[i + 1] - side.candidates.offsets[i])
    return (
        str(i + 1), str(chunk.match + 1), f"{chunk.similarity:.3f}",
        f"{side.max_index[i] + 1} ({side.max_similarity[i]:.3f})", f"{side.context_window[i]:.3f}",
        str(candidates), position(chunk).split(",")[0], side.reason[i].replace("_", " "),
    )  # fmt: skip


def segment_rows(side: Orientation) -> Rows:
    """Return the rows of a segment table: from, to, rise, limits, how the step counts, length."""
    return [
        (
            str(i + 1), f"({i + 1}, {side.match[i] + 1})", f"({i + 2}, {side.match[i + 1] + 1})",
            f"{rise:+d}", str(side.segment_limit), f"{side.segment_limit_lct:g}", method.replace("_", " "),
            f"{length:.3f}",
        )
        for i, (rise, method, length) in enumerate(
            zip(side.segment_dy.tolist(), side.segment_method, side.segment_length.tolist(), strict=True)
        )
    ]  # fmt: skip


def _segments(title: str, side: Orientation, page: int) -> Figure:
    about = (
        f"{title} {side.nas_l:.3f}: length {side.actual_length:.3f}, floor {side.floor_length:.3f}, "
        f"ceiling {side.ceiling_length:.3f}"
    )
    head = ("step", "from", "to", "rise", "limit", "limit with LCT", "counted", "length")
    return _page(about, head, segment_rows(side), (0.0, 0.08, 0.22, 0.36, 0.44, 0.54, 0.7, 0.88), page)


def _page(title: str, head: Sequence[str], rows: Rows, at: Sequence[float], page: int) -> Figure:
    starts = [*page_starts(rows), len(rows)]
    count = len(starts) - 1
    if not 0 <= page < count:
        raise ValueError(f"page must be between 0 and {count - 1}, not {page}")
    title += f" (page {page + 1} of {count})" if count > 1 else ""
    return table(title, head, rows[starts[page] : starts[page + 1]], at)


def table(title: str, head: Sequence[str], rows: Sequence[tuple[str, ...]], at: Sequence[float]) -> Figure:
    """Return a table as a figure.

    Parameters
    ----------
    title
        Title above the table.
    head
        Names of the columns.
    rows
        Texts of the cells.
    at
        Left edges of the columns, as fractions of the width.

    Returns
    -------
    figure
        The figure.
    """
    from matplotlib.figure import Figure

    lines = len(rows) + 1
    height = 0.9 + lines * 0.165
    figure = Figure(figsize=(10, height))
    top = 1 - 0.55 / height
    figure.text(0.04, 1 - 0.3 / height, printable(title), fontsize=10, family="DejaVu Sans", parse_math=False)
    for column, (start, name) in enumerate(zip(at, head, strict=True)):
        # Each column is one text. Their lines are level, because all have the same font.
        text = "\n".join([name, *(row[column] for row in rows)])
        figure.text(
            0.04 + 0.93 * start, top, printable(text), fontsize=7.5, family="DejaVu Sans", va="top",
            linespacing=1.35, parse_math=False,
        )  # fmt: skip
    return figure


def printable(text: str) -> str:
    """Return `text` with a replacement mark for each character that the font lacks; line ends stay."""
    glyphs = _glyphs()
    return "".join(c if c == "\n" or (ord(c) in glyphs and c.isprintable()) else "\ufffd" for c in text)


@functools.cache
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())
