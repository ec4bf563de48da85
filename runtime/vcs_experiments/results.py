"""The results of an experiment: `results.json`, a CSV file for each table, and all tables in `results.md`.

No clock, host or path goes into these files. The same data, seed and long form of the signature give the same
bytes, on one kind of processor (docs/reference/signature.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vcs_experiments.metrics.scoring import Metrics, ScoresById
from vcs_runtime.comparing.latex import Heading, Number, latex_table
from vcs_runtime.comparing.tables import Cell, Table, cell_text, write_csv
from vcs_runtime.scoring.signature import long_form
from vcs_runtime.util.atomic import refuse_input_as_output, write_whole
from vcs_runtime.util.printable import enumerated


@dataclass
class Results:
    """The results of one experiment."""

    experiment: str
    signature: str
    options: Mapping[str, Any]  # what else the numbers depend on
    counts: Mapping[str, int]
    problems: Sequence[str] = ()  # what was left out
    notes: Sequence[str] = ()  # paragraphs before the tables
    tables: list[Table] = field(default_factory=list)
    latex: dict[str, str] = field(default_factory=dict)  # tables as papers print them, by name

    def write(self, folder: Path) -> None:
        """Write all files into a folder."""
        value = {
            "experiment": self.experiment,
            "signature": self.signature,
            "signature_long": long_form(self.signature),
            "options": dict(self.options),
            "counts": dict(self.counts),
            "problems": list(self.problems),
            "notes": list(self.notes),
            "tables": {table.name: table.records() for table in self.tables},
        }
        write_whole(folder / "results.json", json.dumps(value, indent=1, ensure_ascii=False) + "\n")
        for table in self.tables:
            write_csv(folder / f"{table.name}.csv", table.columns, table.rows)
        for name, text in self.latex.items():
            write_whole(folder / f"{name}.tex", text)
        write_whole(folder / "results.md", self.markdown())

    def markdown(self) -> str:
        """Return all tables as Markdown, with 3 decimals."""
        parts = [f"# {self.experiment}", f"`{self.signature}`"]
        parts.append(
            ", ".join(f"{name}: {value}" for name, value in [*self.counts.items(), *self.options.items()])
        )
        parts += self.notes
        for table in self.tables:
            parts.append(f"## {table.title}")
            parts += [table.note] if table.note else []
            rows = [table.columns, tuple("---" for _ in table.columns), *table.rows]
            parts.append("\n".join("| " + " | ".join(map(cell_text, row)) + " |" for row in rows))
        if self.problems:
            parts.append(f"## Left out: {len(self.problems)}")
            parts.append("\n".join(f"- {problem}" for problem in self.problems))
        return "\n\n".join(parts) + "\n"


def check_output(folder: Path, *sources: Path | None) -> None:
    """Raise InputError if one of the files that are read would be replaced by results in a folder."""
    own = (
        *folder.glob("*.csv"),
        *folder.glob("*.tex"),
        *(folder / name for name in ("pairs.jsonl", "results.json", "results.md")),
    )
    for path in own:
        refuse_input_as_output(path, *filter(None, sources))


def write_pairs(
    folder: Path, scores: ScoresById, columns: Sequence[str], keys: tuple[str, str] = ("scene", "case")
) -> None:
    """Write `pairs.csv`: two columns from the ids "SCENE/CASE", called `keys`; then one for each metric."""
    rows: Iterator[tuple[Cell, ...]] = (
        (*name.split("/", 1), *(own[column] for column in columns)) for name, own in scores.items()
    )
    write_csv(folder / "pairs.csv", (*keys, *columns), rows)


def means_table(
    name: str, title: str, groups: Mapping[tuple[Cell, ...], Sequence[Mapping[str, float]]],
    keys: Sequence[str], metrics: Metrics, note: str = "",
) -> Table:  # fmt: skip
    """Make a table of means and sample standard deviations by group, as in the papers."""
    columns = [*keys, "n", *(part for metric in metrics.columns for part in (metric, f"{metric} sd"))]
    rows: list[tuple[Cell, ...]] = []
    for key, scores in groups.items():
        row: list[Cell] = [*key, len(scores)]
        for metric in metrics.columns:
            values = np.array([score[metric] for score in scores])
            row += [float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0]
        rows.append(tuple(row))
    return Table(name, title, tuple(columns), rows, note)


def means_latex(means: Table, keys: Sequence[Heading], metrics: Metrics, caption: str) -> str:
    """Return a table of means as papers print it: its rows as columns, the deviation below the mean."""
    rows: list[list[str | Number]] = []
    for metric in metrics.columns:
        at, factor = means.columns.index(metric), scale(metric, metrics)
        for place, label, sign in ((at, metric, ""), (at + 1, "", "\u00b1")):
            numbers = [f"{factor * float(row[place] or 0):.1f}" for row in means.rows]
            rows.append([label, *(Number("", "", sign + each) if sign else Number(each) for each in numbers)])
    caption = f"{caption} Above, the mean; below, the standard deviation; {times_100(metrics)}."
    return latex_table([Heading("", "metric"), *keys], rows, caption=caption, label=means.name,
                 comments=[metrics.signature], wide=True)  # fmt: skip


def scale(metric: str, metrics: Metrics) -> float:
    """Return by what a score is multiplied in papers; scores computed elsewhere stay as they are."""
    return 1 if metric in metrics.foreign else 100


def times_100(metrics: Metrics) -> str:
    """Say which scores are multiplied by 100."""
    return "times 100" + (f", but {enumerated([*metrics.foreign])}" if metrics.foreign else "")
