"""Where messages go: to the function that the host has set, never to its standard streams."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

# Levels, as Python's `logging` counts them.
INFORMATION: Final = 20
WARNING: Final = 30
ERROR: Final = 40

_receiver: Callable[[int, str], None] | None = None


def set_receiver(receiver: Callable[[int, str], None] | None) -> None:
    """Send messages to `receiver`, called with level and text by any thread, or nowhere."""
    global _receiver
    _receiver = receiver


def log(level: int, message: str) -> None:
    """Send a message."""
    if receiver := _receiver:
        receiver(level, message)


class _Lines(io.TextIOBase):
    """A text stream whose lines become messages of one level."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._begun = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._begun, "text", "") + text).split("\n")
        self._begun.text = rest
        for line in lines:
            if line.strip():
                log(self._level, line)
        return len(text)


def redirect_streams() -> None:
    """Turn what Python prints, warnings included, into messages: for an interpreter that is all ours."""
    stdout: Any = _Lines(INFORMATION)
    stderr: Any = _Lines(WARNING)
    sys.stdout, sys.stderr = stdout, stderr
