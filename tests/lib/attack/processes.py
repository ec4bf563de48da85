"""Commands in separate processes that can be stopped, killed and disturbed."""

from __future__ import annotations

import faulthandler
import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.command_line import Finished
from vcs_runtime.cli import main
from vcs_runtime.jobs.output import OutputFile

#: Far longer than any honest case takes, on a machine that may be busy.
HANGS_AFTER_S = 600
_NUMBERS = itertools.count()


def as_itself(arguments: list[str]) -> int:
    """Be a real process, which has to start Python and import everything."""
    path = os.pathsep.join(filter(None, sys.path))
    os.execve(
        sys.executable,
        [sys.executable, "-m", "vcs_runtime", *arguments],
        {**os.environ, "PYTHONPATH": path},
    )


def slow_down(seconds: float) -> None:
    """Let jobs in this process rest after each block, so that a signal finds them at work."""
    append = OutputFile.append

    def slow(self: OutputFile, records: Any) -> None:
        append(self, records)
        time.sleep(seconds)

    OutputFile.append = slow  # type: ignore[method-assign]


class Command:
    """A command in a fork of this process, or other `work` with its arguments and exit code."""

    def __init__(
        self,
        folder: Path,
        *arguments: object,
        pause_s: float = 0.0,
        work: Callable[[list[str]], int | None] = main,
    ) -> None:
        number = next(_NUMBERS)  # not `id`, which another process may have had before
        self._said = [
            folder / f"said-{os.getpid()}-{number}-{name}" for name in ("stdout", "stderr")
        ]
        self._arguments = [str(argument) for argument in arguments]
        self.code: int | None = None
        for path in self._said:
            path.touch()  # it may be killed before it opens them
        self.pid = os.fork()
        if not self.pid:
            self._be_the_command(pause_s, work)

    def _be_the_command(self, pause_s: float, work: Callable[[list[str]], int | None]) -> None:
        code = 70
        try:
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)
            for number, path in enumerate(self._said, 1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_TRUNC), number)
            sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115
            faulthandler.enable(sys.stderr)  # one that hangs shows where
            if pause_s:
                slow_down(pause_s)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = work(self._arguments) or 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def ended(self, options: int = os.WNOHANG) -> bool:
        """Whether the process has ended; its exit code is noted, that of a signal below 0."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, options)
            if pid and not os.WIFSTOPPED(status):
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def send(self, signum: int) -> None:
        """Send a signal, unless the process has ended."""
        if not self.ended():
            os.kill(self.pid, signum)

    def stop(self) -> bool:
        """Stop the process where it is, to go on by SIGCONT; returns whether it was still there."""
        self.send(signal.SIGSTOP)
        return not self.ended(os.WUNTRACED)

    def rest(self, until: Callable[[], bool]) -> None:
        """Wait for the end or a condition; AssertionError, with the place, if the process hangs."""
        end = time.monotonic() + HANGS_AFTER_S
        while not self.ended() and not until():
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGABRT)
                self.ended(0)
                said = self._said[1].read_text("utf-8", "backslashreplace")
                raise AssertionError(
                    f"{self._arguments} hangs: {said[said.rfind('Fatal Python error') :][:3000]}"
                )
            time.sleep(0.0005)

    def wait(self) -> Finished:
        """Wait for the end."""
        self.rest(lambda: False)
        assert self.code is not None
        stdout, stderr = (path.read_text("utf-8", "backslashreplace") for path in self._said)
        for path in self._said:
            path.unlink()
        return Finished(self.code, stdout, stderr)
