"""The end of an experiment's command: its tables on a terminal, and its exit code."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path

import click
import rich.table

from vcs_runtime.cli.tables import console, warn
from vcs_runtime.experiments.metrics.bertscore import COLUMNS
from vcs_runtime.experiments.metrics.lexical import METEOR, METRICS
from vcs_runtime.experiments.results import Results, shown

_MAX_COLUMNS = 12  # of a printed table; the files hold all columns
_OTHERS = (*METRICS, METEOR, *COLUMNS)  # metrics beside VCS, which comes first


def finish(results: Results, out: Path) -> None:
    """Print the tables. If anything was left out, report it and end with exit code 1."""
    for note in results.notes:
        console().print(note, "", soft_wrap=True)
    for table in results.tables:
        shorter = [i for i, name in enumerate(table.columns) if not name.endswith(" sd")]
        columns = sorted(shorter, key=lambda i: table.columns[i].startswith(_OTHERS))[:_MAX_COLUMNS]
        view = rich.table.Table(title=table.title, box=None, pad_edge=False, title_justify="left")
        for i in columns:
            view.add_column(table.columns[i], no_wrap=not i)
        for row in table.rows:
            view.add_row(*(shown(row[i]) for i in columns))
        console().print(view, "")
    click.echo(", ".join(f"{name}: {value}" for name, value in results.counts.items()))
    click.echo(results.signature)
    click.echo(f"all columns and pairs: {out}")
    exit_if(results.problems)


def exit_if(problems: Sized) -> None:
    """End the command with exit code 1 if anything was left out."""
    if problems:
        warn(f"{len(problems)} left out (see above)")
        raise click.exceptions.Exit(1)
