"""The command line in this process, with its exit codes and its messages."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from vcs_runtime.cli import main


class Finished(NamedTuple):
    """What a command left: its exit code, and what it printed."""

    code: int
    stdout: str
    stderr: str


def vcs(*arguments: object, **environment: str) -> Finished:
    """Run `vcs-runtime` with these arguments, and with these variables in the environment."""
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
    ]
    code: object = 0
    with (
        patch.dict(os.environ, environment),
        redirect_stdout(streams[0]),
        redirect_stderr(streams[1]),
    ):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code or 0  # a command that returns nothing succeeded
    printed = [stream.buffer.getvalue().decode() for stream in streams]  # type: ignore[attr-defined]
    assert isinstance(code, int), code
    return Finished(code, *printed)


def assert_refused(done: Finished, says: str) -> None:
    """Assert that a command was refused as wrong usage, with these words in its message."""
    assert done.code == 2, done.stderr
    assert says in done.stderr
