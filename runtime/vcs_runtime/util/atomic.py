"""Writing files and folders whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vcs_runtime.errors import InputError


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Yield a new binary file that takes the place of `path` when the block ends well, synced to the disk.

    Until then it has a hidden name beside `path`. If the block raises, it is deleted, and `path` stays as it
    was. Raises OSError.
    """
    partial = _beside(path)
    try:
        with partial.open("xb") as file:
            yield file
            flush(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all; text is UTF-8, and its line ends stay. Raises OSError."""
    with replaced(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """Raise InputError naming `path` in place of an OSError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes `target` when the block ends well, and is deleted when it raises.

    Raises InputError if `target` exists; OSError.
    """
    if os.path.lexists(target):
        raise InputError(f"{target} exists already")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = _beside(target)
    folder.mkdir()
    try:
        yield folder
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def flush(file: BinaryIO) -> None:
    """Flush a file to the disk, through the buffers of Python and of the system."""
    file.flush()
    os.fsync(file.fileno())


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial-{secrets.token_hex(8)}")
