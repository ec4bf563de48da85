"""PDF of one pair: title page, all views, both texts and how they were scored (extra `report`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcs_runtime.report import pair_tables, views
from vcs_runtime.report.flow import Document, Part, View, compose, write_document
from vcs_runtime.report.sheet import PITCH, SOFT, WIDTH, Area, printable, shorten, wrap
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
    """Compose the pages of a pair; `body` is what follows the title page, None for everything."""
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
    listed += [table(e, name) for table in tables for name in ("generated", "reference")]
    shown = [table for table in listed if table.rows]
    verdicts = len(shown) - 4  # what says most to a reader stands before how it was computed
    why = [views.costs(e), sentences(_reasons(e))]
    return [*shown[:verdicts], *why, *parts, *shown[verdicts:], pair_tables.configuration(e)]


def heading(title: str, about: Sequence[str], dated: str, signature: str = "") -> View:
    """Return the head of a title page."""
    lines = wrap(title, WIDTH, _BIG * 1.06)[:3]  # bold letters are wider
    lower = [
        line for text in (*about, *([dated] if dated else [])) for line in wrap(text, WIDTH, 9)
    ]
    small = (
        [line for _, line in pair_tables.signature_rows("", f"Scored as {signature}", 7)]
        if signature
        else []
    )
    top = 0.32 + 0.32 * len(lines)
    middle = top + 0.2 + 0.175 * len(lower)

    def draw(area: Area) -> None:
        area.write([(0, 0.1, "Video Comprehension Score")], 9, SOFT)
        area.write([(0, 0.45 + 0.32 * i, line) for i, line in enumerate(lines)], _BIG, bold=True)
        area.write([(0, top + 0.25 + 0.175 * i, line) for i, line in enumerate(lower)], 9)
        area.write([(0, middle + 0.14 + 0.13 * i, line) for i, line in enumerate(small)], 7, SOFT)

    return View("", "", middle + 0.13 * len(small), draw)


def sentences(texts: Sequence[str], mark: str = "•") -> View:
    """Return a part without a title that lists sentences, each with a mark before it."""
    indent = 0.15 * bool(mark)
    lines = [
        ("" if i else mark, line)
        for text in texts
        for i, line in enumerate(wrap(text, WIDTH - indent))
    ]

    def draw(area: Area) -> None:
        baselines = [PITCH * (i + 0.6) for i in range(len(lines))]
        area.write((0, y, mark) for y, (mark, _) in zip(baselines, lines, strict=True))
        area.write((indent, y, line) for y, (_, line) in zip(baselines, lines, strict=True))

    return View("", "", PITCH * len(lines), draw)


def _about(e: Explanation, names: tuple[str, str]) -> list[str]:
    generated, reference = (f" {shorten(name, WIDTH - 2.5, 9)}" if name else "" for name in names)
    which = f" (number {e.result.reference_index + 1} of {e.result.n_references})" * (
        e.result.n_references > 1
    )
    return [
        f"Generated text{generated}: {counted(e.alignment.n_gen, e.noun)}",
        f"Reference{reference}{which}: {counted(e.alignment.n_ref, e.noun)}",
    ]


def _reasons(e: Explanation) -> list[str]:
    """Return sentences on repeated chunks, parts (highest cost first) and replaced words."""
    names = ["repeated", *sorted(e.costs, key=lambda name: -e.costs[name]), "substitution"]
    return [e.sentences[name] for name in names if name in e.sentences]


def _replaced(e: Explanation) -> str:
    """Say how many characters of the texts cannot be drawn, if there are any."""
    text = "".join(chunk.text for chunk in (*e.reference, *e.generated))
    count = printable(text).count("\ufffd")
    return (
        ""
        if not count
        else (
            f"The font of this document lacks {count} of {len(text)} characters, shown as \ufffd. "
            "The HTML report shows all of them."
        )
    )
