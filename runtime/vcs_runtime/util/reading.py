"""Reading files of users within limits: regular files, a line at a time or as a whole.

A text of more than a million characters is never scored, so a line of many megabytes is a file
passed by mistake, or an attack on memory.
"""

from __future__ import annotations

import codecs
import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, AnyStr, Final, cast

from vcs_runtime.errors import InputError
from vcs_runtime.util.atomic import file_errors

#: MB (10^6 bytes) of a line, and of a file that is read as a whole.
LINE_MB: Final = 64.0
FILE_MB: Final = 1000.0

_PORTION: Final = 1 << 24

_LIMIT_MB: Final[ContextVar[float | None]] = ContextVar("limit_mb", default=None)


class TooLongError(Exception):
    """A line, a row or a file beyond its limit.

    The message says what to do, and does not name the place.
    """


@contextmanager
def reading_up_to(mb: float) -> Iterator[None]:
    """Set the limit of lines and of whole files in the block, in MB."""
    token = _LIMIT_MB.set(mb)
    try:
        yield
    finally:
        _LIMIT_MB.reset(token)


def line_limit() -> int:
    """Return the largest size of a line in bytes."""
    return _limit(LINE_MB)


def _limit(default: float) -> int:
    """Return a limit in bytes: the one of `reading_up_to`, or this default in MB."""
    mb = _LIMIT_MB.get() or default
    return int(mb * 1e6)


def too_long(subject: str, limit: int) -> TooLongError:
    """Return the error for something of more bytes than its limit."""
    return TooLongError(f"{subject} has more than {limit / 1e6:g} MB: raise --max-read-mb")


def next_line(file: IO[AnyStr], before: int = 0) -> AnyStr:
    """Read the next line, of a row that has `before` characters already; it is empty at the end.

    Raises TooLongError if they are together beyond the limit of a line; no more is read then.
    """
    limit = line_limit()
    line = file.readline(limit - before + 1)
    if before + len(line) > limit:
        raise too_long("a row" if before else "a line", limit)
    return line


class _Unpacked(io.RawIOBase):
    """The contents of a gzip file. Raises OSError where the file is broken."""

    def __init__(self, file: IO[bytes]) -> None:
        self._packed = file
        self._file = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._file.readinto(buffer)
        except (EOFError, zlib.error) as error:
            raise OSError(f"a broken gzip file: {error}") from None

    def close(self) -> None:
        self._packed.close()
        super().close()


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, unpacked if it is a gzip file.

    An error when it is closed changes nothing that was read.
    """
    file: IO[bytes] = path.open("rb")
    if file.peek(2)[:2] == b"\x1f\x8b":  # type: ignore[attr-defined]
        file = io.BufferedReader(cast("io.RawIOBase", _Unpacked(file)), _PORTION >> 8)
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in small letters; of a gzip file the one before it."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def not_utf8(error: UnicodeDecodeError, whole: str = "") -> str:
    """Return that a text is not UTF-8, what it may be, and the command that converts it.

    `whole` says of what the error's byte is (" of the line"); "-" leaves the byte out.
    """
    byte = f" (byte {error.start}{whole})" if whole != "-" else ""
    if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return (
            f"not UTF-8{byte} but UTF-16, as PowerShell and Excel write it: {converted('UTF-16')}"
        )
    return f"not UTF-8{byte}; if it has the code page Windows-1252: {converted('CP1252')}"


def converted(encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    return f"type iconv -f {encoding} -t UTF-8 FILE > NEW, or save it as UTF-8"


def read_whole(path: Path, name: object = None, *, pipe: bool = False) -> bytes:
    """Read a regular file, or with `pipe` a pipe.

    Raises InputError, which names the file.
    """
    name = path if name is None else name
    limit = _limit(FILE_MB)
    with file_errors(name):
        refuse_special(path, name, pipe=pipe)
        with opened(path) as file:
            content = _read(file, limit + 1) if path.stat().st_size <= limit else None
    if content is None or len(content) > limit:
        raise InputError(f"{name}: {too_long('a file', limit)}")
    return content


def _read(file: IO[bytes], most: int) -> bytes:
    """Read up to `most` bytes, in portions.

    `file.read(most)` takes memory for all of them at once.
    """
    content = io.BytesIO()
    while most and (portion := file.read(min(most, _PORTION))):
        most -= content.write(portion)
    return content.getvalue()


def unique_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON.

    Raises ValueError if it has one key twice: the first would be lost.
    """
    unique: dict[str, Any] = {}
    for key, value in items:
        if key in unique:
            raise ValueError(f"an object has the key {key!r} twice")
        unique[key] = value
    return unique


def refuse_special(path: Path, name: object, *, pipe: bool = False) -> None:
    """Raise InputError for a device or a socket, and unless `pipe` is true, for a pipe.

    A folder or a missing file is left to the one who opens it. Raises OSError.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (pipe and stat.S_ISFIFO(mode))):
        raise InputError(f"{name}: must be a regular file, because it may be read twice")
