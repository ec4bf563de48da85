"""PDF of one pair: title page, all views, both texts and how they were scored (extra `report`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcs_runtime.report import pair_tables, views
from vcs_runtime.report.flow import Document, Part, View, compose, write_document
from vcs_runtime.report.sheet import PITCH, SOFT, WIDTH, Area, Cell, printable, shorten, wrap
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.util.printable import counted

_BIG = 18.0  # size of the title in points


def write_pdf(
    e: Explanation,
    path: Path,
    title: str = "One pair",
    names: tuple[str, str] = ("", ""),
    dated: str = "",
) -> None:
    """Write a title page and every view of a pair to a PDF file.

    Parameters
    ----------
    e
        The explained pair.
    path
        The file to write. An existing file is replaced.
    title
        Title of the report.
    names
        Names of the generated text and of the explained reference.
    dated
        Date of the texts; "" for none.

    Raises
    ------
    InputError
        The file cannot be written.
    MissingExtraError
        matplotlib is not installed.
    """
    write_document(pair_document(e, title, names, dated), path)


def pair_document(
    e: Explanation,
    title: str,
    names: tuple[str, str] = ("", ""),
    dated: str = "",
    body: Sequence[Part] | None = None,
) -> Document:
    """Compose the pages of a pair; `body` has the parts after the title page, None for all."""
    front = [
        heading(title, _about(e, names), dated, e.result.signature),
        sentences([e.conclusion], mark=""),
        views.key_figures(e),
        sentences([e.sentences["vcs"]], mark=""),
    ]
    if note := _replaced(e):
        front.append(sentences([note], mark=""))
    return compose(title, front, all_parts(e) if body is None else body)


def all_parts(e: Explanation) -> list[Part]:
    """Return every view and table of a pair, in the order of the report."""
    tables = (pair_tables.chunks, pair_tables.matches, pair_tables.steps)
    drawn = (
        views.scores,
        views.las,
        views.similarity,
        views.windows,
        views.regularizer,
        views.nas_d,
        views.nas_l,
    )
    parts: list[Part] = [view(e) for view in drawn]
    listed = [pair_tables.replaced(e)]
    for table in tables:
        listed += [table(e, "generated"), table(e, "reference")]
    listed = [table for table in listed if table.rows]
    # The tables that tell a reader most come first, those on how scores were computed last.
    first, last = listed[:-4], listed[-4:]
    why = [views.costs(e), sentences(_reasons(e))]
    return [*first, *why, *parts, *last, pair_tables.configuration(e)]


def heading(title: str, about: Sequence[str], dated: str, signature: str = "") -> View:
    """Return the head of a title page."""
    lines = wrap(title, WIDTH, _BIG * 1.06)[:3]  # bold letters are wider
    about_lines: list[str] = []
    for text in [*about, dated] if dated else about:
        about_lines += wrap(text, WIDTH, 9)
    signature_lines: list[str] = []
    if signature:
        rows = pair_tables.signature_rows("", f"Scored as {signature}", 7)
        signature_lines = [line for _, line in rows]
    top = 0.32 + 0.32 * len(lines)
    middle = top + 0.2 + 0.175 * len(about_lines)

    def draw(area: Area) -> None:
        area.write([(0, 0.1, "Video Comprehension Score")], 9, SOFT)
        area.write(_stacked(lines, 0.45, 0.32), _BIG, bold=True)
        area.write(_stacked(about_lines, top + 0.25, 0.175), 9)
        area.write(_stacked(signature_lines, middle + 0.14, 0.13), 7, SOFT)

    return View("", "", middle + 0.13 * len(signature_lines), draw)


def _stacked(lines: Sequence[str], first: float, pitch: float) -> list[Cell]:
    """Return lines as cells at the left edge, the first baseline at `first` inches."""
    return [(0, first + pitch * i, line) for i, line in enumerate(lines)]


def sentences(texts: Sequence[str], mark: str = "•") -> View:
    """Return a part without a title that lists sentences, each with a mark before it."""
    indent = 0.15 if mark else 0.0
    marks: list[Cell] = []
    lines: list[Cell] = []
    for text in texts:
        marks.append((0, PITCH * (len(lines) + 0.6), mark))
        for line in wrap(text, WIDTH - indent):
            lines.append((indent, PITCH * (len(lines) + 0.6), line))

    def draw(area: Area) -> None:
        area.write(marks)
        area.write(lines)

    return View("", "", PITCH * len(lines), draw)


def _about(e: Explanation, names: tuple[str, str]) -> list[str]:
    generated, reference = names
    which = ""
    if e.result.n_references > 1:
        which = f" (number {e.result.reference_index + 1} of {e.result.n_references})"
    return [
        f"Generated text{_name(generated)}: {counted(e.alignment.n_gen, e.noun)}",
        f"Reference{_name(reference)}{which}: {counted(e.alignment.n_ref, e.noun)}",
    ]


def _name(name: str) -> str:
    return f" {shorten(name, WIDTH - 2.5, 9)}" if name else ""


def _reasons(e: Explanation) -> list[str]:
    """Return sentences on repeated chunks, parts (highest cost first) and replaced words."""
    names = ["repeated", *sorted(e.costs, key=lambda name: -e.costs[name]), "substitution"]
    return [e.sentences[name] for name in names if name in e.sentences]


def _replaced(e: Explanation) -> str:
    """Return a sentence on the characters of the texts that cannot be drawn, if there are any."""
    text = "".join("".join(texts) for texts in e.written)
    count = printable(text).count("\ufffd")
    if not count:
        return ""
    return (
        f"Characters shown as \ufffd, because the font lacks them: {count} of {len(text)}. The"
        " HTML report shows all characters."
    )
