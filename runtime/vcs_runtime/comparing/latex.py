r"""LaTeX tables for the package booktabs: `\begin{table}` with caption and label, as in papers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple


class Number(NamedTuple):
    """A printed number: digits, a mark of significance, an interval, and whether it is bold."""

    value: str
    mark: str = ""
    interval: str = ""
    bold: bool = False

    def __str__(self) -> str:
        """Return the number as plain text."""
        return f"{self.value}{self.mark} {self.interval}".strip()


class Heading(NamedTuple):
    """The heading of a column, and of the group of columns that it belongs to; "" for no group."""

    group: str
    text: str


Row = Sequence[str | Number]
_MANY: Final = 10  # columns


def latex_table(
    headings: Sequence[Heading],
    rows: Iterable[Row],
    *,
    caption: str,
    label: str,
    comments: Sequence[str] = (),
    wide: bool = False,
) -> str:
    r"""Return a table; texts are escaped, and columns without numbers are aligned at their left.

    A `wide` table spans both columns of a page, in letters that fit it; headings of many columns
    stand upright. Both need the package graphicx.
    """
    rows = [*rows]
    many = len(headings) > _MANY
    at_left = [all(isinstance(row[i], str) for row in rows) for i in range(len(headings))]
    environment = "table*" if wide else "table"
    alignment = "".join("l" if left else "r" for left in at_left)
    lines = [f"% {line}" for line in comments]
    lines += [rf"\begin{{{environment}}}", r"\centering"]
    lines.append(rf"\small\setlength{{\tabcolsep}}{{{2 if many else 4}pt}}")
    tabular = rf"\begin{{tabular}}{{{alignment}}}"
    lines.append(rf"\resizebox{{\textwidth}}{{!}}{{{tabular}" if wide else tabular)
    lines.append(r"\toprule")
    if any(heading.group for heading in headings):
        lines += _groups(headings)
    cells = []
    for heading, left in zip(headings, at_left, strict=True):
        text = escape(heading.text)
        cells.append(rf"\rotatebox{{90}}{{{text}}}" if many and not left else text)
    lines += [_row(cells), r"\midrule"]
    lines += [_row(map(_cell, row)) for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}}" if wide else r"\end{tabular}"]
    # Signatures are long: they may break after each field.
    breakable = escape(caption).replace(r"\textbar{}", r"\textbar{}\allowbreak{}")
    lines += [rf"\caption{{{breakable}}}", rf"\label{{tab:{label}}}", rf"\end{{{environment}}}"]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _groups(headings: Sequence[Heading]) -> list[str]:
    """Return the row of the groups, and the rules below them."""
    cells, rules, first = [], [], 1
    for group, members in groupby(heading.group for heading in headings):
        count = len(list(members))
        cells.append(rf"\multicolumn{{{count}}}{{c}}{{{escape(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
        first += count
    return [_row(cells), "".join(rules)]


def _cell(cell: str | Number) -> str:
    if isinstance(cell, str):
        return escape(cell)
    value = rf"\mathbf{{{cell.value}}}" if cell.bold else cell.value
    if cell.mark:
        value += f"^{{{cell.mark}}}"
    interval = cell.interval.replace("±", r"\pm ")
    return " ".join(f"${part}$" for part in (value, interval) if part)


_ESCAPED: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "\u2193": r"$\downarrow$",
    "\u03c4": r"$\tau$",
    "\u03c1": r"$\rho$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def escape(text: str) -> str:
    """Return a text in which no character is a command of LaTeX."""
    escaped = "".join(_ESCAPED.get(character, character) for character in text)
    # After the end of a row these two would be arguments of it.
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped
