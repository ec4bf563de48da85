"""JSON lines: how they are read, and the one way in which a job writes them and continues after a stop.

The output of a job holds finished items in the order of the input, and only whole lines. A block of lines
is appended at once and synced; a write that fails is taken back. So whatever stops a job (Ctrl-C, kill -9,
a full disk) costs at most the block in flight, and the next run continues after the last whole line.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vcs_runtime.errors import InputError
from vcs_runtime.util.progress import progress_bar

T = TypeVar("T")
Record = dict[str, Any]
"""One line of an output."""


def read_jsonl(path: Path, *, skip_torn: bool = False) -> Iterator[tuple[int, Any]]:
    """Read the values of a JSONL file one at a time, with their line numbers.

    Blank lines and a byte order mark are skipped.

    Parameters
    ----------
    path
        The file, as UTF-8.
    skip_torn
        Skip a last line without a line end, which a stopped job has left.

    Yields
    ------
    number, value
        The line's number, counted from 1, and what it holds.

    Raises
    ------
    InputError
        The file cannot be read, or a line is not JSON in UTF-8. The message names the file and the line.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip() and not (skip_torn and not line.endswith(b"\n")):
                    yield number, _parse(line, f"{path} line {number}")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def read_records(
    path: Path, fields: Sequence[str] = ("id",), otherwise: str = "this is no line of an earlier run"
) -> Iterator[tuple[str, Record]]:
    """Read the lines that a job has written, one at a time.

    Parameters
    ----------
    path
        The output of the job.
    fields
        What each line must have.
    otherwise
        The end of the error for a line that is not an object with these fields.

    Yields
    ------
    place, record
        "FILE line N", for errors, and the line.

    Raises
    ------
    InputError
        As for `read_jsonl`, and for a line without the fields.
    """
    for number, record in read_jsonl(path):
        place = f"{path} line {number}"
        if not isinstance(record, dict) or any(field not in record for field in fields):
            raise InputError(f"{place}: {otherwise}")
        yield place, record


def check_signature(place: object, signature: Any, expected: Any) -> None:
    """Raise InputError unless what was computed earlier has the signature of this run."""
    if signature != expected:
        raise InputError(
            f"{place}: its signature is {signature}, and this run's is {expected}: "
            "resume with the same options, or use another output"
        )


class OutputFile:
    """An append-only JSONL file of whole lines, locked against a second writer.

    Parameters
    ----------
    path
        The file, which is created if it does not exist.
    resume
        Keep the whole lines that the file holds, and append after them.
    overwrite
        Delete what the file holds.

    Raises
    ------
    InputError
        The file cannot be opened, locked or written, or holds something and neither option is given.
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
                        f"{path}: it exists; continue it with --resume, or replace it with --overwrite"
                    )
                self._truncate(self._whole_lines() if resume else 0)
        except BaseException:
            os.close(self._file)
            raise

    def records(self) -> Iterator[tuple[str, Record]]:
        """Read the lines that are there, as `read_records` does."""
        return read_records(self.path) if self._regular else iter(())

    def append(self, records: Iterable[Record]) -> None:
        """Append whole lines and sync them; on failure the file is as it was before."""
        data = memoryview("".join(json.dumps(record) + "\n" for record in records).encode())
        try:
            with self._errors("; what was finished before is kept, continue with --resume"):
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
        """Close the file, so that others may write it."""
        os.close(self._file)

    def _whole_lines(self) -> int:
        """Bytes up to the end of the last whole line."""
        end = self._size
        while end:
            start = max(0, end - (1 << 16))
            os.lseek(self._file, start, os.SEEK_SET)  # not `os.pread`, which Windows lacks
            if (newline := os.read(self._file, end - start).rfind(b"\n")) >= 0:
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


def run_resumable(
    path: Path | None,
    items: Iterator[T],
    total: int,
    work: Callable[[Iterator[T]], Iterable[list[tuple[T, Record]]]],
    each: Callable[[T, Record, bool], None],
    *,
    identify: Callable[[T], str | int],
    signatures: Callable[[T, Record], tuple[Any, Any]],
    several_lines: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    bar: Callable[..., contextlib.AbstractContextManager[Callable[[int], None]]] = progress_bar,
) -> None:
    """Do a job item by item, append its lines to an output, and continue an output that was begun.

    Parameters
    ----------
    path
        The output; None writes nothing.
    items
        The items of the input, in order. Those that an earlier run has finished are taken off its front.
    total
        Number of all items, for the bar.
    work
        Takes the items that are left and yields blocks of items with their lines, in order. The lines of a
        block are appended together before the next block is asked for.
    each
        Is called for every line, with its item, the line, and whether an earlier run has written it.
    identify
        The `id` that the lines of an item have.
    signatures
        The signature that an earlier run wrote for an item, and the one that this run would write.
    several_lines
        An item has one line or several; then no two items may have the same id.
    resume
        As for `OutputFile`.
    overwrite
        As for `OutputFile`.
    bar
        Makes the progress bar from the total and the number `done` before.

    Raises
    ------
    InputError
        The output cannot be used, or was written for another input or with another signature.
    """
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(OutputFile(path, resume=resume, overwrite=overwrite)) if path else None
        done = 0
        if output and resume:
            for item, record, begins in _finished(output, items, identify, signatures, several_lines):
                done += begins
                each(item, record, True)
        advance = stack.enter_context(bar(total, done=done))
        for block in work(items):
            if output:
                output.append(record for _, record in block)
            for item, record in block:
                each(item, record, False)
            advance(len({id(item) for item, _ in block}))


def _finished(
    output: OutputFile,
    items: Iterator[T],
    identify: Callable[[T], str | int],
    signatures: Callable[[T, Record], tuple[Any, Any]],
    several_lines: bool,
) -> Iterator[tuple[T, Record, bool]]:
    """Each existing line with its item, and whether it is the item's first."""
    another = "this is the output of another input"
    item: T | None = None
    for place, record in output.records():
        begins = not (several_lines and item is not None and record["id"] == identify(item))
        if begins:
            item = next(items, None)
        if item is None:
            raise InputError(f"{place}: the output has more lines than the input has items: {another}")
        check_signature(place, *signatures(item, record))
        if record["id"] != identify(item):
            raise InputError(
                f"{place}: id {record['id']!r}, where the input has {identify(item)!r}: {another}"
            )
        yield item, record, begins


def _parse(line: bytes, place: str) -> Any:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 (byte {error.start} of the line)") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON: {error}") from None


def _lock(file: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: no advisory locks of this kind
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(None, "another process is writing it") from None
