"""Scoring a file of pairs: one line of JSON a pair in the output, resumable at any moment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.jobs import score_files
from vcs_runtime.jobs.output import ERROR, JobFiles
from vcs_runtime.jobs.pairs import OUTPUT_KEYS, InputPair, PairSource, as_source, count_pairs
from vcs_runtime.jobs.resumable import (
    Items,
    check_signature,
    check_texts,
    hash_texts,
    run_resumable,
)
from vcs_runtime.jobs.score_tables import as_lines
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.explanation import explain
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Pair, Result
from vcs_runtime.scoring.scorer import Scorer

Block = list[tuple[InputPair, dict[str, Any]]]
"""Pairs with their lines of the output."""


def score_file(
    scorer: Scorer, source: Path | PairSource, files: JobFiles | Path | None, options: Options
) -> Summary:
    """Score the pairs of a file, and append one line of JSON a pair to an output.

    The whole input is checked before the first pair is scored. What was written before an error
    stays.
    """
    score = partial(_score_blocks, scorer, options=options)
    return run_blocks(score, source, JobFiles.of(files), scorer.signature_for(options))


def conclusions(
    scorer: Scorer, source: PairSource, options: Options, names: Collection[str | int]
) -> dict[str | int, str]:
    """Return a sentence about each pair of these names: what one can see in it."""
    chosen = (pair for pair in source.read() if pair.name in names)
    blocks = chain.from_iterable(scorer.stream(chosen, attrgetter("texts"), options))
    return {
        pair.name: explain(result, evidence, options.params).conclusion
        for pair, result, evidence in blocks
        if evidence
    }


def run_blocks(
    score: Callable[[Iterator[InputPair]], Iterator[Block]],
    source: Path | PairSource,
    files: JobFiles,
    signature: str,
) -> Summary:
    """Do the same as `score_file`, with the function `score` in place of the scorer.

    `score` takes the unfinished pairs and yields blocks of pairs with their output records.
    """
    source = as_source(source)
    total = count_pairs(source)
    if not total:
        raise InputError(f"{source}: it holds no pairs")
    summary = Summary(signature, failed_as=files.on_error, keep=files.worst)

    def count(pair: InputPair, record: dict[str, Any], resumed: bool) -> None:
        summary.add(record)
        if resumed:
            summary.resumed += 1
        if "error" in record and not pair.missing:
            files.report(_failure(source, pair, record))

    if files.on_error == ERROR:
        score = partial(_until_failure, source, score)
    check = partial(check_line, signature)
    pairs = Items(source.read(), total, attrgetter("name"), check)
    started = time.monotonic()
    lines, finish = as_lines(replace(files, inputs=source.paths), source, check)
    run_resumable(lines, pairs, score, count, finish=finish)
    summary.seconds = time.monotonic() - started
    return summary


def _score_blocks(scorer: Scorer, pairs: Iterator[InputPair], options: Options) -> Iterator[Block]:
    """Yield pairs with their lines, in the blocks in which the scorer finishes them."""
    for block in scorer.stream(pairs, attrgetter("texts"), options):
        yield [(pair, line_of(pair, result)) for pair, result, _ in block]


def _until_failure(
    source: PairSource,
    score: Callable[[Iterator[InputPair]], Iterator[Block]],
    pairs: Iterator[InputPair],
) -> Iterator[Block]:
    """Yield what is finished before the first pair that cannot be scored.

    Raises InputError that names it.
    """
    for block in score(pairs):
        for i, (pair, record) in enumerate(block):
            if "error" not in record:
                continue
            if i:
                yield block[:i]
            raise InputError(
                f"{_failure(source, pair, record)}; finished output is kept: mend the pair and"
                " continue with --resume, or add --on-error skip or zero"
            )
        yield block


def _failure(source: PairSource, pair: InputPair, record: dict[str, Any]) -> str:
    place = "" if pair.missing else f" {pair.place}"
    name = "" if pair.id is None else f" (id {pair.id})"
    return f"{source}{place}{name}: {record['error']}"


def record_of(name: str | int, texts: Pair, result: Result) -> dict[str, Any]:
    """Make the output's line of a pair."""
    return {"id": name, **result.to_dict(), "texts": hash_texts(*texts)}


def line_of(pair: InputPair, result: Result) -> dict[str, Any]:
    """Make the output's line of a pair of an input, with the columns that the output repeats."""
    record = {**record_of(pair.name, pair.texts, result), **pair.kept}
    if pair.missing:
        record["error"] = "there is no prediction"
    return record


def check_line(signature: str, place: str, pair: InputPair, record: dict[str, Any]) -> None:
    """Raise InputError unless an existing line is complete and belongs to this run.

    The line's signature, texts and kept columns must match this run.
    """
    check_signature(place, record.get("signature"), signature)
    check_texts(place, record, hash_texts(*pair.texts))
    score_files.check_line(place, record)
    fields = {"id", "texts", "error", "signature"} if "error" in record else OUTPUT_KEYS
    columns = {name: value for name, value in record.items() if name not in fields}
    if json.dumps(columns, sort_keys=True) != json.dumps(dict(pair.kept), sort_keys=True):
        raise InputError(
            f"{place}: its kept columns are {columns}, but this run's are {dict(pair.kept)}:"
            " resume with the same input and --keep-column, or choose another output"
        )
