"""Running an experiment's jobs resumably: one line of JSON a text, then the table of all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.experiments.datasets import Problems
from vcs_runtime.experiments.results import write_pairs
from vcs_runtime.experiments.scoring import Job, Metrics
from vcs_runtime.jobs.jsonl import OutputFile
from vcs_runtime.util.progress import progress_bar

# Texts that are scored and written at a time: what a job that is stopped may lose.
_BLOCK = 64


@dataclass(frozen=True)
class Output:
    """The folder of an experiment's results, and what becomes of those that are there already."""

    folder: Path
    resume: bool = False
    overwrite: bool = False


def run_jobs(
    jobs: Sequence[Job], metrics: Metrics, out: Output, problems: Problems
) -> dict[str, dict[str, float]]:
    """Score `jobs`, append a line each to `pairs.jsonl`, and write `pairs.csv`; returns the scores by id,
    without what failed.

    Resuming goes on behind the last whole line, which must be of the same jobs and the same signature.
    Raises InputError as `jobs.run.score_file` does.
    """
    found: dict[str, dict[str, float]] = {}
    path = out.folder / "pairs.jsonl"

    def keep(record: dict[str, Any]) -> None:
        if "error" in record:
            problems.add(f"{record['id']}: {record['error']}: not scored")
        else:
            found[record["id"]] = {name: record[name] for name in metrics.columns}

    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(OutputFile(path, resume=out.resume, overwrite=out.overwrite))
        done = 0
        for number, record in enumerate(lines.records() if out.resume else (), 1):
            if (
                record["signature"] != metrics.signature
                or number > len(jobs)
                or record["id"] != jobs[number - 1].id
            ):
                raise InputError(
                    f"{path} line {number}: {record['id']}, {record['signature']}: of another run; "
                    "resume with the same data and options, or use --overwrite"
                )
            keep(record)
            done = number
        advance = stack.enter_context(progress_bar(len(jobs), unit="texts", done=done))
        for start in range(done, len(jobs), _BLOCK):
            block = jobs[start : start + _BLOCK]
            records = [
                {"id": job.id, "signature": metrics.signature}
                | ({"error": str(scores)} if isinstance(scores, TextError) else scores)
                for job, scores in zip(block, metrics.score(block), strict=True)
            ]
            lines.append(records)
            for record in records:
                keep(record)
            advance(len(block))
    write_pairs(out.folder, found, metrics.columns)
    return found
