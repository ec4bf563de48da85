"""Long jobs: pairs from a file, one line of JSON a pair to another, resumable at any moment.

The output holds finished pairs in the order of the input, and only whole lines: a block of lines is appended
at once and synced; a write that fails is taken back. So whatever stops a job (Ctrl-C, kill -9, a full disk)
costs at most the block in flight, and `resume` goes on behind the last whole line.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.pairs import InputPair, count_pairs, read_pairs
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.summary import Summary
from vcs_runtime.util.progress import progress_bar

Block = list[tuple[InputPair, dict[str, Any]]]
"""Pairs with the records that the output has of them."""


def run(
    scorer: Scorer,
    source: Path,
    output: Path | None,
    options: Options,
    *,
    resume: bool = False,
    overwrite: bool = False,
    report_failure: Callable[[str], None] = lambda message: None,
    progress: bool = True,
) -> Summary:
    """Score the pairs of `source` and append one JSON line a pair to `output` (None: only the summary).

    The whole input is checked before the first pair is scored. An `output` that holds anything is refused
    unless `resume` (go on behind its last whole line) or `overwrite` is given. `report_failure` is called
    with a line for every pair that cannot be scored.

    Raises InputError naming the file and the line; DeviceError, CacheError, BundleError as the scorer does.
    What was written before an error stays.
    """
    score = partial(_score_blocks, scorer, options=options)
    line = scorer.signature_for(options)
    return run_blocks(
        score, source, output, line,
        resume=resume, overwrite=overwrite, report_failure=report_failure, progress=progress,
    )  # fmt: skip


def run_blocks(
    score: Callable[[Iterator[InputPair]], Iterator[Block]],
    source: Path,
    output: Path | None,
    line_signature: str,
    *,
    resume: bool = False,
    overwrite: bool = False,
    report_failure: Callable[[str], None] = lambda message: None,
    progress: bool = True,
) -> Summary:
    """`run`, with whatever scores the pairs that are left: `score` gives them back in order, in blocks.

    line_signature  that of all records
    """
    total = count_pairs(source)
    if not total:
        raise InputError(f"{source}: it holds no pairs")
    summary = Summary(line_signature)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        lines = (
            stack.enter_context(OutputFile(output, resume=resume, overwrite=overwrite)) if output else None
        )
        pairs = read_pairs(source)
        if lines and resume:
            for record, pair in _finished(lines, pairs, source, line_signature):
                summary.add(record)
                summary.resumed += 1
                _report(record, pair, source, report_failure)
        advance = stack.enter_context(progress_bar(total, enabled=progress, done=summary.resumed))
        for block in score(pairs):
            if lines:
                lines.append(record for _, record in block)
            for pair, record in block:
                summary.add(record)
                _report(record, pair, source, report_failure)
            advance(len(block))
    summary.seconds = time.monotonic() - started
    return summary


def _score_blocks(scorer: Scorer, pairs: Iterator[InputPair], options: Options) -> Iterator[Block]:
    """Score the pairs; yield them with their records in the blocks in which the scorer finishes them."""
    for block in scorer.stream(pairs, attrgetter("texts"), options):
        yield [(pair, record_of(pair, result)) for pair, result, _ in block]


def record_of(pair: InputPair, result: Result) -> dict[str, Any]:
    """What the output says of a pair."""
    return {"id": pair.name, **result.to_dict()}


def _report(record: dict[str, Any], pair: InputPair, source: Path, report: Callable[[str], None]) -> None:
    if "error" in record:
        name = f" (id {pair.id})" if pair.id is not None else ""
        report(f"{source} {pair.place}{name}: {record['error']}")


def _finished(
    lines: OutputFile, pairs: Iterator[InputPair], source: Path, line_signature: str
) -> Iterator[tuple[dict[str, Any], InputPair]]:
    """The records that are there already, each with its pair, taken off the front of `pairs`."""
    for number, record in enumerate(lines.records(), 1):
        place = f"{lines.path} line {number}"
        if record.get("signature") != line_signature:
            raise InputError(
                f"{place}: scored as {record.get('signature')}, this run is {line_signature}: "
                "resume with the same options, or use another output"
            )
        pair = next(pairs, None)
        if pair is None:
            raise InputError(f"{place}: the output has more lines than {source} has pairs")
        if record.get("id") != pair.name:
            raise InputError(
                f"{place}: id {record.get('id')!r}, but {source} {pair.place} is {pair.name!r}: "
                "this is the output of another input"
            )
        yield record, pair


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
