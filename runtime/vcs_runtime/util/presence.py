"""What is known about a path; raises if access is denied.

`Path.is_dir`, `is_file` and `exists` of Python 3.14 say False where they may not look, so that a
folder which its user may not enter would be "no such folder". These raise OSError there, as those
of Python 3.11 do.
"""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path


def is_folder(path: Path) -> bool:
    """Return whether a folder is there. Raises OSError where that cannot be seen."""
    found = _look(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_regular_file(path: Path) -> bool:
    """Return whether a regular file is there. Raises OSError where that cannot be seen."""
    found = _look(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_there(path: Path) -> bool:
    """Return whether anything is there. Raises OSError where that cannot be seen."""
    return _look(path) is not None


def changed_at(path: Path) -> datetime:
    """Return when a file was changed, in UTC.

    A time beyond the calendar becomes the first or last.
    """
    # The year 9999.
    return datetime.fromtimestamp(min(max(path.stat().st_mtime, 0), 253_402_300_799), UTC)


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # ValueError: no path has such a character.
        return None
