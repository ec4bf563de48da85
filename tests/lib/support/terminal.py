"""The command line in a process of its own, on a terminal that is as wide as one likes."""

from __future__ import annotations

import os
import subprocess
import sys

# Rich redraws ten times a second; here it redraws at every move.
_SCRIPT = (
    "import rich.progress as p; move = p.Progress.update\n"
    "p.Progress.update = lambda self, *a, **k: (move(self, *a, **k), self.refresh())[0]\n"
    "import sys; from vcs_runtime.cli import main; main(sys.argv[1:])"
)


def on_terminal(*arguments: object, columns: int = 120) -> str:
    """Run `vcs-runtime` with a terminal as standard error, and return what that showed.

    Standard output goes nowhere. An exit code other than 0 is an AssertionError with what was
    shown.
    """
    import pty  # POSIX only

    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", _SCRIPT, *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode(errors="replace")
        os.close(ours)
    assert process.returncode == 0, shown
    return shown


def _read(terminal: int) -> bytes:
    """Read what a terminal shows next; b"" after the other end was closed."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
