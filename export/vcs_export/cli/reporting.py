"""What the commands print: steps, progress, checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from vcs_runtime.util.progress import shown

if TYPE_CHECKING:
    from rich.progress import TaskID

    from vcs_export.checks.verify import Check


def log(line: str) -> None:
    """Print one line about a step to standard error."""
    click.echo(f"vcs-runtime: {line}", err=True)


def print_checks(checks: Iterable[Check]) -> None:
    """Print each check as it is done, and exit with code 1 if one of them does not hold."""
    holds = True
    for check in checks:
        click.echo(f"{'ok' if check.holds else 'FAILED':6} {check.name}: {check.detail}")
        holds &= check.holds
    if not holds:
        raise click.exceptions.Exit(1)


@contextmanager
def step_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a `vcs_export.write.Progress` that draws a bar for each step on a terminal, and else nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with shown(Progress(*columns, console=console, disable=not console.is_terminal)) as bars:
        tasks: dict[tuple[str, int], TaskID] = {}

        def advance(step: str, done: int, total: int) -> None:
            if (step, total) not in tasks:
                tasks[step, total] = bars.add_task(step, total=total)
            bars.update(tasks[step, total], completed=done)

        yield advance
