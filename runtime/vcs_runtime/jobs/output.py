"""The output of a job: an append-only file of complete lines, in which no data is lost.

A block of lines is appended and synced at once. If a write fails, its bytes are removed again. An
output that is continued is read first; it is changed only if every line in it belongs to this job.
If another program changes the file, the job ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import Record, is_torn, read_records
from vcs_runtime.util.atomic import file_errors, refuse_input_as_output

SKIP, ZERO, ERROR = "skip", "zero", "error"
#: The ways to treat a pair that cannot be scored: leave it out of the means, count it as a text
#: that says nothing, or end the job.
ON_ERROR = (SKIP, ZERO, ERROR)


@dataclass(frozen=True)
class JobFiles:
    """The output of a job, and what happens to it.

    Parameters
    ----------
    output
        File for the lines. None: nothing is written, and the job only has a summary.
    resume
        Continue the output after its last complete line.
    overwrite
        Replace an existing output.
    on_error
        How a pair that cannot be scored is treated: `skip` leaves it out of the means, `zero`
        counts it as a text that says nothing, `error` ends the job.
    report
        Is called with a message for everything that cannot be scored.
    progress
        Whether a terminal shows a progress bar.
    inputs
        Files that the job reads, none of which may be its output.
    worst
        Number of lines that the summary keeps for `Summary.worst`.
    """

    output: Path | None = None
    resume: bool = False
    overwrite: bool = False
    on_error: str = SKIP
    report: Callable[[str], None] = lambda message: None
    progress: bool = True
    inputs: Sequence[Path] = ()
    worst: int = 0

    @classmethod
    def of(cls, value: JobFiles | Path | None) -> JobFiles:
        """Return the files of a job unchanged, and for an output a job that writes it."""
        return value if isinstance(value, JobFiles) else cls(value)


# Windows' C library counts the places of locks in 31 bits.
_LAST_LOCKABLE: Final = (1 << 31) - 2


class OutputFile:
    """An append-only JSONL file of complete lines, locked against a second writer.

    Failures raise InputError.
    """

    def __init__(
        self,
        path: Path,
        inputs: Iterable[Path] = (),
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.path = path
        refuse_input_as_output(path, *inputs)
        with file_errors(self.path):
            # A pipe that is opened for reading as well would take what nobody reads.
            access = os.O_WRONLY if path.is_fifo() else os.O_RDWR
            flags = access | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(path, flags, 0o644)
        try:
            with file_errors(self.path):
                # Not a pipe or /dev/null.
                self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)
                if self._regular or os.name == "posix":
                    _lock(self._file)
                self._size = os.fstat(self._file).st_size if self._regular else 0
                if self._size and not (resume or overwrite):
                    raise InputError(
                        f"{path} exists already: continue it with --resume, or replace it with"
                        " --overwrite"
                    )
                if not resume:
                    self._truncate(0)
        except BaseException:
            os.close(self._file)
            raise

    def records(self) -> Iterator[tuple[str, Record]]:
        """Read the existing lines, as `read_records` does, without a torn last line."""
        return read_records(self.path, skip_torn=True) if self._regular else iter(())

    def end_last_line(self, begins: str, *, known: bool) -> None:
        """Remove a torn last line, or add the line end that it lacks, so that lines can follow.

        Lines of this job start with `begins`. Raises InputError if the last line does not, unless
        the file is `known` to hold other lines of this job.
        """
        torn = self._after_last_line_end()
        if not torn:
            return
        if not is_torn(torn):
            self._write(b"\n")
        elif known or torn.startswith(begins.encode()) or begins.encode().startswith(torn):
            with file_errors(self.path):
                self._truncate(self._size - len(torn))
        else:
            raise InputError(
                f"{self.path} is not the output of an earlier run: choose another output"
            )

    def append(self, records: Iterable[Record]) -> None:
        """Append whole lines and sync them; on failure the file is as it was before."""
        self._write("".join(json.dumps(record) + "\n" for record in records).encode())

    def check(self) -> None:
        """Raise InputError if the file is no longer what this object has read and written."""
        if not self._regular:
            return
        try:
            there, opened = os.stat(self.path), os.fstat(self._file)
        except OSError:
            change = "it was removed or renamed"
        else:
            # Some file systems of Windows number no files (0). There, an open file cannot be
            # replaced.
            if there.st_ino and not os.path.samestat(there, opened):
                change = "another file has taken its place"
            elif opened.st_size != self._size:
                change = (
                    f"another program has changed it ({opened.st_size} bytes instead of"
                    f" {self._size})"
                )
            else:
                return
        raise InputError(
            f"{self.path}: {change} while the job was running, so output since then is lost:"
            " restore the file and continue with --resume, or start again"
        )

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            os.close(self._file)

    def close(self) -> None:
        """Check the file for the last time, and close it, so that others may write it."""
        try:
            self.check()
        finally:
            os.close(self._file)

    def remove(self, leave: Callable[[Path], object] = Path.unlink) -> None:
        """Remove the file, or rename it, while it is still locked: no other job is writing it."""
        self.check()
        self._regular = False  # from here on there is nothing to check
        if os.name == "nt":  # which removes no open file
            os.close(self._file)
            self._file = os.open(os.devnull, os.O_WRONLY)
        with file_errors(self.path):
            leave(self.path)

    def _write(self, content: bytes) -> None:
        self.check()
        data = memoryview(content)
        try:
            with file_errors(self.path, "; finished output is kept: continue with --resume"):
                while data:
                    data = data[os.write(self._file, data) :]
                if self._regular:
                    os.fsync(self._file)
        except BaseException:
            with contextlib.suppress(OSError):
                self._truncate(self._size)
            raise
        self._size += len(content)

    def _after_last_line_end(self) -> bytes:
        blocks: list[bytes] = []
        end = self._size
        while end:
            start = max(0, end - (1 << 16))
            os.lseek(self._file, start, os.SEEK_SET)  # not `os.pread`, which Windows lacks
            _, newline, block = os.read(self._file, end - start).rpartition(b"\n")
            blocks.append(block)
            end = 0 if newline else start
        return b"".join(reversed(blocks))

    def _truncate(self, size: int) -> None:
        if self._regular:
            os.ftruncate(self._file, size)
        self._size = size


def _lock(file: int) -> None:
    """Lock a file against a second writer, until it is closed; raises OSError if there is one."""
    try:
        import fcntl
    except ImportError:
        _lock_on_windows(file)
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(None, "another process is writing it") from None
    except OSError as error:
        raise OSError(
            None, f"it cannot be locked ({error.strerror}): write to another file system"
        ) from None


def _lock_on_windows(file: int) -> None:
    import msvcrt

    windows: Any = msvcrt  # other systems' type checkers know none of its functions
    # Locked bytes cannot be read. The last byte that can be locked is far after the lines of most
    # jobs.
    os.lseek(file, _LAST_LOCKABLE, os.SEEK_SET)
    try:
        windows.locking(file, windows.LK_NBLCK, 1)
    except OSError:
        raise OSError(None, "another process is writing it") from None
