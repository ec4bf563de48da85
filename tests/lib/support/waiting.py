"""Waiting for an event, however long a slow or busy machine takes for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

#: Seconds after which something will never come: no honest wait is nearly as long.
HANGS_AFTER_S = 600

#: A line that a job prints each half minute, as a slow machine sees it.
PROGRESS = re.compile(
    r"^vcs-runtime: .+: \d+ of \d+(, (about \d+ min|about a minute|less than a minute) left)?\n",
    re.MULTILINE,
)


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so. Raises AssertionError if it never is."""
    end = time.monotonic() + HANGS_AFTER_S
    while not condition():
        assert time.monotonic() < end, "what a test waits for has not happened"
        time.sleep(0.01)
