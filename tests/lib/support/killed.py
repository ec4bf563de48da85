"""A command that is killed while it works."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

#: How often a command may be faster than the kill: it is begun again.
_TRIES = 20


def kill_when_it_writes(command: Sequence[str], output: Path, lines: int) -> int:
    """Start a command, kill it (-9) after some of `lines` lines; return how many there are."""
    for _ in range(_TRIES):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None and not (output.exists() and output.stat().st_size):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        finished = output.read_bytes().count(b"\n") if output.exists() else 0
        if killed and finished < lines:
            return finished
        assert finished == lines, (
            f"{command} ended before it was killed, after {finished} of {lines} lines"
        )
        output.unlink()
    raise AssertionError(f"{command} was finished {_TRIES} times before it could be killed")
