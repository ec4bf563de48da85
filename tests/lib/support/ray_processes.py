"""Ray's worker processes on this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def kill_one(name: str) -> None:
    """Kill a worker whose process is called `ray::NAME...`, as the kernel would where memory is short."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_bytes()
        except OSError:
            continue
        if title.startswith(f"ray::{name}".encode()):
            os.kill(int(path.parent.name), signal.SIGKILL)
            return
    raise AssertionError(f"no process ray::{name}")
