"""Messages to the function that the host has set, never to the host's standard streams."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

# The levels of Python's `logging`.
INFORMATION: Final = 20
WARNING: Final = 30
ERROR: Final = 40

_receiver: Callable[[int, str], None] | None = None


def set_receiver(receiver: Callable[[int, str], None] | None) -> None:
    """Set the receiver of messages, which any thread may call with level and text.

    None discards messages.
    """
    global _receiver
    _receiver = receiver


def log(level: int, message: str) -> None:
    """Send a message to the receiver."""
    receiver = _receiver  # another thread may change it
    if receiver:
        receiver(level, message)


class _Lines(io.TextIOBase):
    """A text stream whose lines become messages of one level."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._unfinished = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        text_so_far = getattr(self._unfinished, "text", "") + text
        *lines, self._unfinished.text = text_so_far.split("\n")
        for line in lines:
            if line.strip():
                log(self._level, line)
        return len(text)


def redirect_streams() -> None:
    """Turn all output of Python, warnings included, into messages.

    Only for an interpreter without a host.
    """
    stdout: Any = _Lines(INFORMATION)
    stderr: Any = _Lines(WARNING)
    sys.stdout, sys.stderr = stdout, stderr
