"""JSON lines: an output of whole lines that a job can append to and continue, and how its lines are read."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError


def read_records(
    path: Path, otherwise: str = "this is no line of an earlier run"
) -> Iterator[dict[str, Any]]:
    """The lines that a job has written to `path`, one at a time: objects with an `id` and a `signature`.

    Raises InputError that names the line and says `otherwise` for one that is none.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict) or not {"id", "signature"} <= record.keys():
                raise InputError(f"{path} line {number}: {otherwise}")
            yield record


class OutputFile:
    """An append-only JSONL file of whole lines, locked against a second writer.

    Raises InputError naming the file where it cannot be opened, locked or written.
    """

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = path
        with self._errors():
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        try:
            with self._errors():
                self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)  # not a pipe or /dev/null
                _lock(self._file)
                self._size = os.fstat(self._file).st_size if self._regular else 0
                if self._size and not (resume or overwrite):
                    raise InputError(
                        f"{path}: it exists; go on with --resume, or replace it with --overwrite"
                    )
                self._truncate(self._whole_lines() if resume else 0)
        except BaseException:
            os.close(self._file)
            raise

    def records(self) -> Iterator[dict[str, Any]]:
        """The lines that are there. Raises InputError for one that this program did not write."""
        return read_records(self.path) if self._regular else iter(())

    def append(self, records: Iterable[dict[str, Any]]) -> None:
        """Append whole lines and sync them; on failure the file is as it was before."""
        data = memoryview("".join(json.dumps(record) + "\n" for record in records).encode())
        try:
            with self._errors("; what was finished before is kept, go on with --resume"):
                written = 0
                while written < len(data):
                    written += os.write(self._file, data[written:])
                if self._regular:
                    os.fsync(self._file)
        except BaseException:
            with contextlib.suppress(OSError):
                self._truncate(self._size)
            raise
        self._size += len(data)

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and let others write it."""
        os.close(self._file)

    def _whole_lines(self) -> int:
        """Bytes up to the end of the last whole line."""
        end = self._size
        while end:
            start = max(0, end - (1 << 16))
            if (newline := os.pread(self._file, end - start, start).rfind(b"\n")) >= 0:
                return start + newline + 1
            end = start
        return 0

    def _truncate(self, size: int) -> None:
        if self._regular:
            os.ftruncate(self._file, size)
            os.lseek(self._file, size, os.SEEK_SET)
        self._size = size

    @contextlib.contextmanager
    def _errors(self, more: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}{more}") from None


def _lock(file: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: no advisory locks of this kind
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(None, "another process is writing it") from None
