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

    A `wide` one spans both columns of a page, in letters that fit it; headings of many columns
    stand upright. Both need the package graphicx.
    """
    rows, many = [*rows], len(headings) > _MANY
    at_left = [all(isinstance(row[i], str) for row in rows) for i in range(len(headings))]
    lines = [*(f"% {line}" for line in comments), rf"\begin{{table{'*' * wide}}}", r"\centering"]
    lines.append(rf"\small\setlength{{\tabcolsep}}{{{2 if many else 4}pt}}")
    fitted = r"\resizebox{\textwidth}{!}{" * wide
    lines += [
        rf"{fitted}\begin{{tabular}}{{{''.join('l' if left else 'r' for left in at_left)}}}",
        r"\toprule",
    ]
    if any(heading.group for heading in headings):
        lines += _groups(headings)
    upright = [
        (
            rf"\rotatebox{{90}}{{{escape(heading.text)}}}"
            if many and not left
            else escape(heading.text)
        )
        for heading, left in zip(headings, at_left, strict=True)
    ]
    lines += [rf"{' & '.join(upright)} \\", r"\midrule"]
    lines += [rf"{' & '.join(map(_cell, row))} \\" for row in rows]
    said = escape(caption).replace(r"\textbar{}", r"\textbar{}\allowbreak{}")  # long signatures
    lines += [r"\bottomrule", r"\end{tabular}" + "}" * wide, rf"\caption{{{said}}}"]
    return "\n".join([*lines, rf"\label{{tab:{label}}}", rf"\end{{table{'*' * wide}}}"]) + "\n"


def _groups(headings: Sequence[Heading]) -> list[str]:
    """Return the row of the groups, and the rules below them."""
    cells, rules, first = [], [], 1
    for group, own in groupby(heading.group for heading in headings):
        count = len(list(own))
        cells.append(rf"\multicolumn{{{count}}}{{c}}{{{escape(group)}}}")
        rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if group else []
        first += count
    return [rf"{' & '.join(cells)} \\", "".join(rules)]


def _cell(cell: str | Number) -> str:
    if isinstance(cell, str):
        return escape(cell)
    value = rf"\mathbf{{{cell.value}}}" if cell.bold else cell.value
    mark = f"^{{{cell.mark}}}" if cell.mark else ""
    interval = cell.interval.replace("±", r"\pm ")
    return " ".join(f"${part}$" for part in (f"{value}{mark}", interval) if part)


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
