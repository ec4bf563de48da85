"""Progress bars on standard error: rate and remaining time, or a line every 30 seconds.

A bar counts finished units. Work that finishes many units at a time reports its parts with
`report_part`, so that the bar moves meanwhile. A bar within the block of another moves that one, so
that a job has one bar.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from vcs_runtime.util.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID


#: Seconds between two lines where there is no terminal.
EVERY: Final = 30.0


class _Bar:
    """The bar that is open: several threads may move it."""

    def __init__(self, done: int, bars: Progress, task: TaskID) -> None:
        self.finished = self._shown = self._first = float(done)
        self._began = self._printed_at = time.monotonic()
        self._bars, self._task = bars, task
        self._lock = threading.Lock()

    def move(self, position: float) -> None:
        with self._lock:
            # Never backwards, if the same units are worked on twice.
            self._shown = max(self._shown, position)
            self._bars.update(self._task, completed=self._shown)
            if self._bars.disable and time.monotonic() - self._printed_at > EVERY:
                self._printed_at = time.monotonic()
                self._print(self._bars.tasks[0])

    def _print(self, task: Task) -> None:
        total = task.total or 0
        done = self._shown - self._first
        line = f"vcs-runtime: {printable(task.description)}: {int(self._shown)} of {total:.0f}"
        if done > 0:  # before that the rate is unknown
            seconds = (self._printed_at - self._began) / done * (total - self._shown)
            left = f"about {seconds / 60:.0f} min" if seconds >= 90 else "about a minute"
            line += f", {left if seconds >= 30 else 'less than a minute'} left"
        print(line, file=sys.stderr, flush=True)

    def advance(self, count: int) -> None:
        self.finished += count
        self.move(self.finished)

    def skip(self, count: int) -> None:
        """Advance by units that were finished before, which say nothing about the rate."""
        with self._lock:
            self.finished += count
            self._shown = self._first = max(self._shown, self.finished)
            self._began = time.monotonic()
            self._bars.reset(self._task, completed=int(self._shown))

    def rename(self, what: str) -> None:
        self._bars.update(self._task, description=what)


_BAR: Final[ContextVar[_Bar | None]] = ContextVar("bar", default=None)
_UNITS: Final[ContextVar[tuple[float, int]]] = ContextVar("units", default=(0.0, 0))


def finished_units() -> float:
    """Return how many units of the open bar are finished; 0 without a bar."""
    bar = _BAR.get()
    return bar.finished if bar else 0.0


@contextmanager
def units_in_work(count: int, first: float) -> Iterator[None]:
    """Mark units `first` to `first + count` of the open bar as being in work in the block."""
    token = _UNITS.set((first, count))
    try:
        yield
    finally:
        _UNITS.reset(token)


def report_part(done: float) -> None:
    """Move the open bar to this part, in [0, 1], of the units in work.

    Without a bar nothing happens.
    """
    if bar := _BAR.get():
        first, count = _UNITS.get()
        bar.move(first + done * count)


def name_step(what: str) -> None:
    """Show this name before the open bar. Without a bar nothing happens."""
    if bar := _BAR.get():
        bar.rename(what)


@contextmanager
def progress_bar(
    total: int, what: str = "scoring", unit: str = "pairs", *, enabled: bool = True, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs, and yield a function that advances it by units.

    Within the block of another bar, the other bar moves instead. `done` units were finished before.
    """
    if not enabled:
        yield lambda count: None
        return
    if outer := _BAR.get():
        if done:
            outer.skip(done)
        yield outer.advance
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(
                f"{task.speed:.1f} {unit}/s" if task.speed else "", style="progress.data.speed"
            )

    console = Console(stderr=True)
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn())
    with shown(Progress(*columns, console=console, disable=not console.is_terminal)) as progress:
        bar = _Bar(done, progress, progress.add_task(what, total=total, completed=done))
        token = _BAR.set(bar)
        try:
            yield bar.advance
        finally:
            _BAR.reset(token)


@contextmanager
def shown(bars: Progress) -> Iterator[Progress]:
    """Show rich's `bars` while the block runs, unless they are disabled.

    Before 14.3, rich ends disabled bars with a line break all the same.
    """
    if bars.disable:
        yield bars
    else:
        with bars:
            yield bars


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
        TextColumn(what),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with shown(Progress(*columns, console=console, disable=not console.is_terminal)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
