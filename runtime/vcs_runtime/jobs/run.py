"""Long jobs: pairs from a file, one line of JSON a pair to another, resumable at any moment.

The output holds finished pairs in the order of the input, and only whole lines: a block of lines is appended
at once and synced; a write that fails is taken back. So whatever stops a job (Ctrl-C, kill -9, a full disk)
costs at most the block in flight, and `resume` goes on behind the last whole line.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import OutputFile
from vcs_runtime.jobs.pairs import InputPair, count_pairs, read_pairs
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.progress import progress_bar

Block = list[tuple[InputPair, dict[str, Any]]]
"""Pairs with the records that the output has of them."""


def score_file(
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
    """`score_file` with another scorer: `score` gives the pairs that are left back in order, in blocks.

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
