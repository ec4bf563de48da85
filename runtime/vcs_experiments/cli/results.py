"""The end of an experiment's command: its tables on a terminal, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Sized
from pathlib import Path

import click
import rich.table
from rich.cells import cell_len

from vcs_experiments.results import Results
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.tables import console
from vcs_runtime.comparing.tables import Table, cell_text

_MAX_COLUMNS = 12  # of a printed table, if the terminal is wide enough; the files hold all columns
_GAP = 2  # between columns
_DETAIL = re.compile(r" sd$| rater \d+$")  # columns that the files alone have


def finish(results: Results, out: Path) -> None:
    """Write the results and print the tables. If anything was left out, report it: exit code 1."""
    results.write(out)
    for note in results.notes:
        console().print(note, "", soft_wrap=True)
    for table in results.tables:
        columns = [i for i, name in enumerate(table.columns) if not _DETAIL.search(name)]
        console().print(_view(table, columns[:_MAX_COLUMNS]), "")
    click.echo(", ".join(f"{name}: {value}" for name, value in results.counts.items()))
    click.echo(results.signature)
    click.echo(f"all columns and pairs: {out}")
    exit_if(results.problems)


def _view(table: Table, columns: list[int]) -> rich.table.Table:
    """Return as many columns of a table as the terminal has room for.

    Their headings may be broken between words, cells may not.
    """
    room = console().width
    cells = {i: [table.columns[i], *(cell_text(row[i]) for row in table.rows)] for i in columns}
    widths = {i: max(map(cell_len, cells[i])) for i in columns}
    if sum(widths.values()) + _GAP * (len(columns) - 1) > room:
        widths = {i: max(map(cell_len, [*cells[i][0].split(), *cells[i][1:]])) for i in columns}
    view = rich.table.Table(title=table.title, box=None, pad_edge=False, title_justify="left")
    used = -_GAP
    for i, width in widths.items():
        if view.columns and used + _GAP + width > room:
            break
        used += _GAP + width
        view.add_column(table.columns[i], width=width)
    for row in zip(*(cells[i][1:] for i in columns[: len(view.columns)]), strict=True):
        view.add_row(*row)
    return view


def exit_if(problems: Sized) -> None:
    """End the command with exit code 1 if anything was left out."""
    if problems:
        warn(f"{len(problems)} left out (see above)")
        raise click.exceptions.Exit(1)
