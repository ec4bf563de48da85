"""What hangs is told from what has little of a busy machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attack.patience import Patience
from attack.processes import Command

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="no other system shows what a process does")
LOOK_S = 0.1


@contextmanager
def process(does: str) -> Iterator[int]:
    """A process that has begun to do something, and its number. It ends with all that it has started."""
    program = f"import subprocess, sys, time; print(flush=True); {does}"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as running:
        assert running.stdout
        running.stdout.readline()
        try:
            yield running.pid
        finally:
            if sys.platform == "win32":
                running.kill()
            else:
                os.killpg(running.pid, signal.SIGKILL)


def looks_until_over(patience: Patience, most: int = 100) -> int:
    for number in range(most):
        if patience.is_over(LOOK_S):
            return number
        time.sleep(LOOK_S)
    return most


def test_a_process_that_sleeps_hangs() -> None:
    with process("time.sleep(60)") as pid:
        patience = Patience(pid, asleep_s=0.45)
        assert 4 <= looks_until_over(patience) < 20  # it may still have been on its way
        assert patience.why == "has slept for 0.45 s"


def test_what_happens_in_between_is_not_counted() -> None:
    with process("time.sleep(60)") as pid:
        patience = Patience(pid, asleep_s=0.45)
        for _ in range(12):
            assert not patience.is_over(LOOK_S)
            patience.begin()


@LINUX
@pytest.mark.parametrize(
    "does", ["exec('while True: pass')", "subprocess.run([sys.executable, '-c', 'while True: pass'])"]
)
def test_a_process_that_computes_hangs_only_after_much_of_the_processors_time(does: str) -> None:
    with process(does) as pid:
        assert looks_until_over(Patience(pid, asleep_s=0.45, cpu_s=600), 15) == 15
        patience = Patience(pid, asleep_s=60, cpu_s=0.3)
        assert looks_until_over(patience) < 100
        assert patience.why == "has computed for 0.3 s"


@LINUX
def test_a_fork_that_hangs_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attack.processes.Patience", lambda pid: Patience(pid, asleep_s=0.5))

    def never_ends(arguments: list[str]) -> int:
        time.sleep(60)
        return 0

    with pytest.raises(TimeoutError, match=r"(?s)hangs: it has slept for 0.5 s: .*in never_ends"):
        Command(tmp_path, [], forked=True, work=never_ends).wait()
