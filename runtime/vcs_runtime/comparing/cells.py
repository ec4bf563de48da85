"""A table of cells, for people and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.printable import cell

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """A table."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    note: str = ""

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows as JSON objects; NaN and infinity become null."""
        return [dict(zip(self.columns, map(_finite, row), strict=True)) for row in self.rows]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a CSV file. Parameters as for `csv_text`."""
    write_whole(path, csv_text(columns, rows))


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table as CSV; floats have all digits, and NaN and infinity become empty cells."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(cell, columns))
    writer.writerows([cell(_finite(value)) for value in row] for row in rows)
    return text.getvalue()


def _finite(cell: Any) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def shown(cell: Cell) -> str:
    """Write a cell for people: floats with 3 decimals, NaN and infinity as nothing."""
    if isinstance(cell, float):
        return f"{cell:.3f}" if math.isfinite(cell) else ""
    return "" if cell is None else str(cell).replace("|", "\\|").replace("\n", " ")
