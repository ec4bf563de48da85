"""The end of an experiment's command: its tables on a terminal, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Sized
from pathlib import Path

import click

from vcs_experiments.results import Results
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.tables import console, print_table, prose
from vcs_runtime.comparing.tables import cell_text

_MAX_COLUMNS = 12  # of a printed table, if the terminal is wide enough; the files hold all columns
_DETAIL = re.compile(r" sd$| rater \d+$")  # columns of the files alone


def finish(results: Results, out: Path) -> None:
    """Write the results and print the tables. If anything was left out, report it: exit code 1."""
    results.write(out)
    for note in results.notes:
        console().print(note, "", soft_wrap=True)
    for table in results.tables:
        columns = [i for i, name in enumerate(table.columns) if not _DETAIL.search(name)]
        # A narrow terminal first loses the columns of the table's choice, then the last ones.
        drop = [columns.index(table.columns.index(name)) for name in table.drop]
        for place in reversed(range(1, len(columns))):
            if place not in drop:
                drop.append(place)
        rows = []
        for row in table.rows:
            rows.append([cell_text(row[i]) for i in columns])
        prose(console(), table.title, "italic")
        print_table(
            [table.columns[i] for i in columns],
            rows,
            drop=drop,
            more=f"in {table.name}.csv",
            most=_MAX_COLUMNS,
        )
        console().print()
    click.echo(", ".join(f"{name}: {value}" for name, value in results.counts.items()))
    click.echo(results.signature)
    click.echo(f"all columns and pairs are in {out}")
    exit_if(results.problems)


def exit_if(problems: Sized) -> None:
    """End the command with exit code 1 if anything was left out."""
    if problems:
        warn(f"{len(problems)} left out, as listed above")
        raise click.exceptions.Exit(1)
