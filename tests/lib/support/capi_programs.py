"""Programs that use the C API, compiled and run by tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

Compile = Callable[..., Path]
Run = Callable[..., str]


def run(program: Path, *arguments: object, **environment: str) -> str:
    """Run a program that must succeed silently; returns its standard output."""
    done = subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        check=False,
        cwd="/",
        env={"HOME": os.environ["HOME"], "PATH": "/nowhere", **environment},
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stdout + done.stderr
    return done.stdout.decode("latin-1")
