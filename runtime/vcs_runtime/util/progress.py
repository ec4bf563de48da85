"""Progress bars on standard error: rate and remaining time on a terminal, nothing when piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    total: int, what: str = "scoring", unit: str = "pairs", *, enabled: bool = True, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs.

    Parameters
    ----------
    total
        Number of units in all.
    what
        Name of the step, shown before the bar.
    unit
        Name of the units.
    enabled
        Whether there is a bar.
    done
        Units that were finished before.

    Yields
    ------
    Callable
        Advances the bar by a number of units.
    """
    if not enabled:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f} {unit}/s" if task.speed else "", style="progress.data.speed")

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda count: progress.advance(task, count)


@contextmanager
def byte_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar of the step `what` by a number of bytes of `total`."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
