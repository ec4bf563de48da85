"""Records of large files that this machine has hashed, and links to such files that keep their records.

A record is an empty marker file, so that writing is atomic. Its name holds a hash of what the file system
says about a file (device, inode, size, times of change of content and inode) and the sha256 of its bytes.
Whatever changes a file changes one of these facts, so that its records do not count any more.

A new hard link changes the time of the inode as well. `link` and `unlink` therefore look at the file directly
before and after it. If nothing but that time and the number of links differs, the records hold on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vcs_numba.jit.owners import make_folder
from vcs_runtime.bundle.paths import own_folder
from vcs_runtime.errors import BundleError

LARGE = 1 << 30
"""Files of at least this many bytes are hashed once per machine."""


def record_folder() -> Path | None:
    """Return the folder of the records; None without a home folder, or where others can write to it."""
    with suppress(BundleError, PermissionError):
        return own_folder("verified")
    return None


def record_name(path: Path, sha256: str) -> str:
    """Return the name of the record that the bytes of a file, as it is now, have a sha256."""
    return _name(path.stat(), sha256)


def record(folder: Path, name: str) -> None:
    """Write a record. A folder that cannot be written costs only time."""
    with suppress(OSError):
        make_folder(folder, 0o700)
        (folder / name).touch()


def link(source: Path, target: Path) -> None:
    """Make a hard link, as `os.link`; what was recorded about the file holds on."""
    with _keep_records(source):
        os.link(source, target)


def unlink(path: Path) -> None:
    """Remove a file, as `os.unlink`; what was recorded about its other links holds on."""
    with _keep_records(path):
        os.unlink(path)


@contextmanager
def _keep_records(path: Path) -> Iterator[None]:
    folder = record_folder()
    if folder is None or path.stat().st_size < LARGE:
        yield
        return
    with path.open("rb") as file:  # stays the same file while its links change
        before = os.fstat(file.fileno())
        hashes = _recorded(folder, before)
        yield
        after = os.fstat(file.fileno())
    if _content_facts(before) == _content_facts(after):
        for sha256 in hashes:
            record(folder, _name(after, sha256))


def _recorded(folder: Path, facts: os.stat_result) -> list[str]:
    with suppress(OSError):
        return [name.partition("-")[2] for name in os.listdir(folder) if name.startswith(_name(facts, ""))]
    return []


def _name(facts: os.stat_result, sha256: str) -> str:
    known = (*_content_facts(facts), facts.st_ctime_ns)
    return f"{hashlib.sha256(repr(known).encode()).hexdigest()}-{sha256}"


def _content_facts(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
