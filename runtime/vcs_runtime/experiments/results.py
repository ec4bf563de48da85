"""What an experiment leaves: `results.json`, one CSV a table, and all tables in `results.md`.

No clock, host or path goes into these files: the same data, seed and signature give the same bytes.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcs_runtime.experiments.scoring import Metrics

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """A table: `name` is its file's, `title` says what it shows, `note` how to read it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    note: str = ""

    def records(self) -> list[dict[str, Cell]]:
        """The rows for JSON: NaN is null."""
        return [dict(zip(self.columns, map(_finite, row), strict=True)) for row in self.rows]


@dataclass
class Results:
    """The results of one experiment. `problems`: what was left out, in words."""

    experiment: str
    signature: str
    options: Mapping[str, Any]
    counts: Mapping[str, int]
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    tables: list[Table] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write all files into `folder`."""
        value = {
            "experiment": self.experiment,
            "signature": self.signature,
            "options": dict(self.options),
            "counts": dict(self.counts),
            "problems": list(self.problems),
            "notes": list(self.notes),
            "tables": {table.name: table.records() for table in self.tables},
        }
        _replace(folder / "results.json", json.dumps(value, indent=1, ensure_ascii=False) + "\n")
        for table in self.tables:
            write_csv(folder / f"{table.name}.csv", table.columns, table.rows)
        _replace(folder / "results.md", self.markdown())

    def markdown(self) -> str:
        """All tables, 3 decimals."""
        parts = [f"# {self.experiment}", f"`{self.signature}`"]
        parts.append(
            ", ".join(f"{name}: {value}" for name, value in [*self.counts.items(), *self.options.items()])
        )
        parts += self.notes
        for table in self.tables:
            parts.append(f"## {table.title}")
            parts += [table.note] if table.note else []
            rows = [table.columns, tuple("---" for _ in table.columns), *table.rows]
            parts.append("\n".join("| " + " | ".join(map(shown, row)) + " |" for row in rows))
        if self.problems:
            parts.append(f"## Left out: {len(self.problems)}")
            parts.append("\n".join(f"- {problem}" for problem in self.problems))
        return "\n\n".join(parts) + "\n"


def write_pairs(folder: Path, found: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> None:
    """`pairs.csv`: `scene`, `case`, then a column a metric; ids are "SCENE/CASE"."""
    rows: Iterator[tuple[Cell, ...]] = (
        (*name.split("/", 1), *(scores[column] for column in columns)) for name, scores in found.items()
    )
    write_csv(folder / "pairs.csv", ("scene", "case", *columns), rows)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A CSV file; floats in full, what is not finite empty."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_finite(cell) for cell in row] for row in rows)
    os.replace(temporary, path)


def means_table(
    name: str, title: str, groups: Mapping[tuple[Cell, ...], Sequence[Mapping[str, float]]],
    keys: Sequence[str], metrics: Metrics, note: str = "",
) -> Table:  # fmt: skip
    """Mean and sample standard deviation of every metric by group, as the papers' tables have them."""
    import numpy as np

    columns = [*keys, "n", *(part for metric in metrics.columns for part in (metric, f"{metric} sd"))]
    rows: list[tuple[Cell, ...]] = []
    for key, scores in groups.items():
        row: list[Cell] = [*key, len(scores)]
        for metric in metrics.columns:
            values = np.array([score[metric] for score in scores])
            row += [float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0]
        rows.append(tuple(row))
    return Table(name, title, tuple(columns), rows, note)


def _finite(cell: Any) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def shown(cell: Cell) -> str:
    """A cell for people: floats with 3 decimals, what is not finite empty."""
    if isinstance(cell, float):
        return f"{cell:.3f}" if math.isfinite(cell) else ""
    return "" if cell is None else str(cell).replace("|", "\\|").replace("\n", " ")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, "utf-8", newline="\n")
    os.replace(temporary, path)
