"""Other processes, and what they print."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import Any


def captured(
    command: Iterable[object], *, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and capture what it prints as text."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=check, **options)


def run_python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the interpreter of the tests with these arguments, as `captured` runs it."""
    return captured([sys.executable, *arguments], **options)
