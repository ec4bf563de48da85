"""An experiment's results: a JSON line per text, and tables in JSON, CSV, LaTeX and Markdown.

No clock, host or path goes into these files. The same data, seed and long form of the signature
give the same bytes, on one kind of processor (docs/reference/signature.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from vcs_experiments.datasets.texts import Problems
from vcs_experiments.metrics.scoring import Job, Metrics, Scored, ScoresById
from vcs_runtime.comparing.latex import Heading, Number, latex_table
from vcs_runtime.comparing.tables import Cell, Table, cell_text, write_csv
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import (
    Items,
    check_signature,
    check_texts,
    hash_texts,
    run_resumable,
)
from vcs_runtime.scoring.signature import long_form
from vcs_runtime.util.atomic import refuse_input_as_output, write_whole
from vcs_runtime.util.printable import enumerated
from vcs_runtime.util.progress import progress_bar


@dataclass
class Results:
    """The results of one experiment."""

    experiment: str
    signature: str
    options: Mapping[str, Any]  # on which the numbers depend, too
    counts: Mapping[str, int]
    problems: Sequence[str] = ()  # messages about texts that were left out
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
        settings = [*self.counts.items(), *self.options.items()]
        parts.append(", ".join(f"{name}: {value}" for name, value in settings))
        parts += self.notes
        for table in self.tables:
            parts.append(f"## {table.title}")
            if table.note:
                parts.append(table.note)
            rows = [table.columns, ("---",) * len(table.columns), *table.rows]
            lines = ["| " + " | ".join(map(cell_text, row)) + " |" for row in rows]
            parts.append("\n".join(lines))
        if self.problems:
            parts.append(f"## Left out: {len(self.problems)}")
            parts.append("\n".join(f"- {problem}" for problem in self.problems))
        return "\n\n".join(parts) + "\n"


def check_output(folder: Path, *sources: Path | None) -> None:
    """Raise InputError if results in `folder` would replace one of the files in `sources`."""
    outputs = [*folder.glob("*.csv"), *folder.glob("*.tex")]
    outputs += [folder / "pairs.jsonl", folder / "results.json", folder / "results.md"]
    for path in outputs:
        refuse_input_as_output(path, *filter(None, sources))


def write_pairs(
    folder: Path,
    scores: ScoresById,
    columns: Sequence[str],
    keys: tuple[str, str] = ("scene", "case"),
) -> None:
    """Write `pairs.csv`: columns `keys` from ids "SCENE/CASE", then one column for each metric."""
    rows: list[tuple[Cell, ...]] = []
    for name, by_column in scores.items():
        numbers = [by_column[column] for column in columns]
        rows.append((*name.split("/", 1), *numbers))
    write_csv(folder / "pairs.csv", (*keys, *columns), rows)


def means_table(
    name: str,
    title: str,
    groups: Mapping[tuple[Cell, ...], Sequence[Mapping[str, float]]],
    keys: Sequence[str],
    metrics: Metrics,
    note: str = "",
) -> Table:
    """Make a table of means and sample standard deviations by group, as in the papers."""
    columns = [*keys, "n"]
    for metric in metrics.columns:
        columns += [metric, f"{metric} sd"]
    rows: list[tuple[Cell, ...]] = []
    for key, scores in groups.items():
        row: list[Cell] = [*key, len(scores)]
        for metric in metrics.columns:
            values = np.array([score[metric] for score in scores])
            row += [float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0]
        rows.append(tuple(row))
    return Table(name, title, tuple(columns), rows, note)


def means_latex(means: Table, keys: Sequence[Heading], metrics: Metrics, caption: str) -> str:
    """Return a LaTeX table of means as in papers: metrics as rows, deviations below the means."""
    rows: list[list[str | Number]] = []
    for metric in metrics.columns:
        place, factor = means.columns.index(metric), scale(metric, metrics)
        upper: list[str | Number] = [metric]
        lower: list[str | Number] = [""]
        for row in means.rows:
            mean, deviation = float(row[place] or 0), float(row[place + 1] or 0)
            upper.append(Number(f"{factor * mean:.1f}"))
            lower.append(Number("", "", f"\u00b1{factor * deviation:.1f}"))
        rows += [upper, lower]
    caption = f"{caption} Above: mean; below: standard deviation; {times_100(metrics)}."
    return latex_table(
        [Heading("", "metric"), *keys],
        rows,
        caption=caption,
        label=means.name,
        comments=[metrics.signature],
        wide=True,
    )


def scale(metric: str, metrics: Metrics) -> float:
    """Return the factor for a score in papers: 100, or 1 for scores computed elsewhere."""
    return 1 if metric in metrics.foreign else 100


def times_100(metrics: Metrics) -> str:
    """Say which scores are multiplied by 100."""
    if not metrics.foreign:
        return "times 100"
    return f"times 100, but {enumerated([*metrics.foreign])}"


# Texts that are scored and written at a time. A job that is stopped loses no more.
_BLOCK = 64


@dataclass(frozen=True)
class Output:
    """The folder of an experiment's results."""

    folder: Path  # must exist
    resume: bool = False
    overwrite: bool = False


def run_jobs(
    jobs: Sequence[Job],
    metrics: Metrics,
    out: Output,
    problems: Problems,
    *,
    keys: tuple[str, str] = ("scene", "case"),
) -> dict[str, dict[str, float]]:
    """Score jobs, append a line per job to `pairs.jsonl`, and write `pairs.csv`.

    `keys` names the id columns of `pairs.csv`.
    """
    scores: dict[str, dict[str, float]] = {}
    for column, foreign in metrics.foreign.items():
        lacking = [job.id for job in jobs if job.id not in foreign.numbers]
        if lacking:
            few = f"missing for {len(lacking)} of {len(jobs)} texts"
            raise InputError(f"{foreign.path}: no {column} for {lacking[0]} ({few})")

    def collect(job: Job, record: Record, resumed: bool) -> None:
        if "error" in record:
            problems.add(f"{job.id}: {record['error']}: not scored")
        else:
            ours = [name for name in metrics.columns if name not in metrics.foreign]
            scores[job.id] = {name: record[name] for name in ours}
            for name, foreign in metrics.foreign.items():
                scores[job.id][name] = foreign.numbers[job.id]

    def check(place: str, job: Job, record: Record) -> None:
        # Texts first: other texts have another idf, too, and the signature would say less.
        check_texts(place, record, hash_texts(job.references, job.generated))
        check_signature(place, record.get("signature"), metrics.signature)

    run_resumable(
        JobFiles(out.folder / "pairs.jsonl", out.resume, out.overwrite),
        Items(jobs, len(jobs), attrgetter("id"), check),
        partial(_score_blocks, metrics),
        collect,
        bar=partial(progress_bar, unit="texts"),
    )
    write_pairs(out.folder, scores, metrics.columns, keys)
    return scores


def _score_blocks(metrics: Metrics, jobs: Iterator[Job]) -> Iterator[list[tuple[Job, Record]]]:
    while block := list(islice(jobs, _BLOCK)):
        scored = metrics.score(block)
        yield [(job, _record(job, scores, metrics.signature)) for job, scores in scored]


def _record(job: Job, scores: Scored, signature: str) -> Record:
    columns = {"error": str(scores)} if isinstance(scores, TextError) else scores
    texts = hash_texts(job.references, job.generated)
    return {"id": job.id, "signature": signature, **columns, "texts": texts}
