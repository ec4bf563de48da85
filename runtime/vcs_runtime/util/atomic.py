"""Writing files and folders whole or not at all."""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from vcs_runtime.errors import InputError

# A partial file or folder of this age belongs to a process that was killed.
_STALE_SECONDS = 24 * 3600.0


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Yield a new binary file that takes the place of `path`, synced, when the block succeeds.

    Until then it has a hidden name beside `path`. If the block raises, it is deleted, and `path`
    stays as it was. A file that is replaced keeps its permissions. Raises OSError, which names
    `path`.
    """
    partial = beside(path)
    _sweep(path)
    try:
        with partial.open("xb") as file:
            if path.is_file():
                partial.chmod(path.stat().st_mode & 0o777)
            yield file
            flush(file)
        partial.replace(path)
    except OSError as error:
        raise _naming(error, partial, path) from None
    finally:
        with suppress(OSError):  # the earlier error counts
            partial.unlink()


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all.

    Text is UTF-8, line ends stay, and half surrogates are escaped.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with replaced(path) as file:
        file.write(data)


@contextmanager
def file_errors(path: object, more: str = "") -> Iterator[None]:
    """Raise InputError naming `path` in place of an OSError, and saying `more`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: {reason_of(error, path)}{more}") from None


def reason_of(error: OSError, path: object) -> str:
    """Return the reason of an error, or that the folder of `path` does not exist."""
    folder = Path(str(path)).parent
    if error.errno == errno.ENOENT and not folder.exists():
        return f"the folder {folder} does not exist: type mkdir -p {folder}"
    return str(error.strerror or error)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes `target` when the block ends well, and is deleted when it raises.

    New parents of `target` are deleted, too. Raises InputError if `target` exists, and OSError that
    names files by their path in `target`.
    """
    if os.path.lexists(target):
        raise InputError(f"{target} exists already")
    folder = beside(target)
    _sweep(target)
    with made_folder(target.parent):
        try:
            folder.mkdir()
            yield folder
            folder.rename(target)
        except OSError as error:
            raise _naming(error, folder, target) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; new ones are deleted again if they stay empty."""
    missing = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for path in missing:
            with suppress(OSError):  # it is not empty
                path.rmdir()


def same_file(first: Path, second: Path) -> bool:
    """Return whether two paths lead to one file or folder, through any links.

    False if one is missing.
    """
    try:
        one, two = first.stat(), second.stat()
    except OSError:
        return False
    if one.st_ino or two.st_ino:
        return os.path.samestat(one, two)
    # Some file systems of Windows have no numbers of files.
    return os.path.realpath(first) == os.path.realpath(second)


def lies_in(path: Path, source: Path) -> bool:
    """Return whether `path`, or the target of its link, is `source` or lies inside it."""
    # A link lies in one folder and leads to another: a writer may change either.
    ways = (path, path.parent) if path.is_symlink() else (path,)
    places = [Path(os.path.realpath(way)) for way in ways]
    return any(same_file(parent, source) for place in places for parent in (place, *place.parents))


def refuse_input_as_output(output: Path, *sources: Path) -> None:
    """Raise InputError if `output` is one of the input files or folders, or lies inside one."""
    for source in sources:
        if same_file(output, source):
            raise InputError(f"{output} is the input {source}: choose another output")
        if lies_in(output, source):
            raise InputError(f"{output} is in the input {source}: choose another output")


def flush(file: BinaryIO) -> None:
    """Flush a file to the disk, through the buffers of Python and of the system."""
    file.flush()
    os.fsync(file.fileno())


def _naming(error: OSError, partial: Path, path: Path) -> OSError:
    """Name `path` in an error that names nothing, or that names its partial file or folder."""
    name = os.fspath(partial)
    if isinstance(error.filename, str | bytes):
        name = os.fsdecode(error.filename)
    error.filename = name.replace(os.fspath(partial), os.fspath(path))
    return error


def partials(path: Path) -> Iterator[Path]:
    """Yield the partial files and folders of `path`."""
    return path.parent.glob(f"{glob.escape(_prefix(path))}*")


def stale(path: Path) -> Iterator[Path]:
    """Yield the partial files and folders of `path` that are at least a day old."""
    for partial in partials(path):
        with suppress(OSError):
            if time.time() - partial.lstat().st_mtime > _STALE_SECONDS:
                yield partial


def _sweep(path: Path) -> None:
    for partial in stale(path):
        if partial.is_dir() and not partial.is_symlink():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            with suppress(OSError):
                partial.unlink()


def beside(path: Path) -> Path:
    """Return a new name beside `path` for a file or folder that will replace it."""
    return path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}")


def _prefix(path: Path) -> str:
    return f".{path.name}.partial-"
