"""Commands in processes that can be stopped, killed and disturbed: forks of this one, and real ones."""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vcs_numba
from attack.patience import Patience, said_last
from support.command_line import Finished
from vcs_runtime.cli import main
from vcs_runtime.jobs.output import OutputFile

_NUMBERS = itertools.count()
_LOOK_S = 0.002


def warm_up() -> None:
    """Import here, once, what each fork would; no session is opened, which a fork could not use."""
    for name in (
        "onnxruntime",
        "tokenizers",
        "sentencex",
        "pyarrow.parquet",
        "vcs_runtime.cli.score",
        "vcs_runtime.cli.explain",
    ):
        importlib.import_module(name)
    compile_kernels()


def compile_kernels() -> None:
    """Compile the kernels into Numba's cache, which takes most of a minute after each change of their code.

    Without this each door would compile them in its own share of the time.
    """
    rows = np.eye(3, 4)
    for kind in (np.float32, np.float64):
        matrix = np.full((2, 2), 0.5, kind)
        vcs_numba.score_batch([matrix], [0.5])
        vcs_numba.score_similarity(matrix, 0.5)
        vcs_numba.align(matrix)
        vcs_numba.hm_cf(matrix, 0.5)
        vectors = rows.astype(kind)
        vcs_numba.recombine(vcs_numba.score_embeddings(vectors, vectors, vectors[0], vectors[0]), gas=0.5)
    ids, none = np.zeros(1, np.int32), np.zeros(1, bool)
    words = vcs_numba.Words(ids, ids, ids, np.zeros((1, 3)), none, none, ids)
    vcs_numba.substitution(words, words, ids, ids, vcs_numba.Vocabulary(np.eye(1, 4), none[None]))


def slow_down(seconds: float) -> None:
    """Let jobs in this process rest after each block of lines, so that a signal finds them at work."""
    append = OutputFile.append

    def slow(self: OutputFile, records: Any) -> None:
        append(self, records)
        time.sleep(seconds)

    OutputFile.append = slow  # type: ignore[method-assign]


class Command:
    """A command in a process of its own; `forked` saves what starting Python takes.

    A fork may do other `work` than the command's, with the same arguments; its exit code is what that returns.
    """

    def __init__(
        self,
        folder: Path,
        arguments: list[object],
        *,
        forked: bool,
        pause_s: float = 0.0,
        work: Callable[[list[str]], int | None] = main,
    ) -> None:
        number = next(_NUMBERS)  # not `id`, which another process may have had before
        self._said = [folder / f"said-{os.getpid()}-{number}-{name}" for name in ("stdout", "stderr")]
        self._arguments = [str(argument) for argument in arguments]
        self.code: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if not forked:
            with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "vcs_runtime", *self._arguments],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
                )  # fmt: skip
            self.pid = self._process.pid
            return
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
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(file, number)
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

    def send(self, signum: int) -> None:
        """Send a signal, unless the process has ended."""
        if not self.ended():
            os.kill(self.pid, signum)

    def ended(self) -> bool:
        """Whether the process has ended; its exit code is noted, that of a signal below 0."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                if self._process:  # which has not waited itself, and would complain
                    self._process.returncode = self.code
        return self.code is not None

    def wait(self) -> Finished:
        """Wait for the end. Raises TimeoutError, with the place where it hangs, if it does not come."""
        patience = Patience(self.pid)
        while not self.ended():
            self.rest(patience, _LOOK_S)
        assert self.code is not None
        stdout, stderr = (path.read_text("utf-8", "backslashreplace") for path in self._said)
        for path in self._said:
            path.unlink()
        return Finished(self.code, stdout, stderr)

    def rest(self, patience: Patience, seconds: float) -> None:
        """Give the process some time. Raises TimeoutError, and ends the process, if it hangs."""
        if patience.is_over(seconds):
            os.kill(self.pid, signal.SIGABRT)
            os.waitpid(self.pid, 0)
            raise TimeoutError(f"{self._arguments} hangs: it {patience.why}: {said_last(self._said[1])}")
        time.sleep(seconds)

    def stop(self) -> bool:
        """Stop the process where it is, to go on by SIGCONT; returns whether it was still there."""
        if self.ended():
            return False
        os.kill(self.pid, signal.SIGSTOP)
        while True:
            with open(f"/proc/{self.pid}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
            if state == "T":
                return True
            if state == "Z" or self.ended():
                return False
            time.sleep(0.0005)


def lines_in(path: Path) -> int:
    """The number of whole lines of a file that may not be there."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def wait_for_lines(command: Command, path: Path, rng: random.Random, most: int) -> None:
    """Wait until the output has some lines, or the command has ended."""
    wanted, patience = rng.randint(1, most), Patience(command.pid)
    while not command.ended() and lines_in(path) < wanted:
        command.rest(patience, 0.0005)
