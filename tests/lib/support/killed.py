"""A command that is killed while it works."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path


def kill_when_it_writes(command: Sequence[str], output: Path) -> int:
    """Start a command, kill it (-9) once there is something in `output`; returns how many lines there are."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (output.exists() and output.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return output.read_bytes().count(b"\n")
