"""Writing files and folders whole, or not at all."""

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
def new_folder(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` if the block ends well, and vanishes if not."""
    if os.path.lexists(target):
        raise InputError(f"{target} exists already")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.parent / f".{target.name}.partial-{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        yield folder
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
