"""Checks of a path that raise an error if access is denied.

In Python 3.14, `Path.is_dir`, `is_file` and `exists` return False if access is denied. A folder
that its user may not enter would be "no such folder". These functions raise OSError, as Python 3.11
does.
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

_YEAR_9999 = 253_402_300_799  # seconds of its end


def is_folder(path: Path) -> bool:
    """Return whether a folder is there. Raises OSError if access is denied."""
    status = _look(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_regular_file(path: Path) -> bool:
    """Return whether a regular file is there. Raises OSError if access is denied."""
    status = _look(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def is_there(path: Path) -> bool:
    """Return whether anything is there. Raises OSError if access is denied."""
    return _look(path) is not None


def changed_at(path: Path) -> datetime:
    """Return when a file was changed, in UTC.

    A time beyond the calendar becomes its first or last time.
    """
    seconds = min(max(path.stat().st_mtime, 0), _YEAR_9999)
    return datetime.fromtimestamp(seconds, UTC)


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # ValueError: no path has such a character.
        return None
