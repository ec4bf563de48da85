"""Running the jobs of an experiment: a line of JSON for each text, then the table of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path

from vcs_experiments.datasets.texts import Problems
from vcs_experiments.metrics.scoring import Job, Metrics, Scored
from vcs_experiments.results import write_pairs
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import Items, check_signature, check_texts, hash_texts, run_resumable
from vcs_runtime.util.progress import progress_bar

# Texts that are scored and written at a time: what a job that is stopped may lose.
_BLOCK = 64


@dataclass(frozen=True)
class Output:
    """The folder of an experiment's results."""

    folder: Path  # must exist
    resume: bool = False
    overwrite: bool = False


def run_jobs(
    jobs: Sequence[Job], metrics: Metrics, out: Output, problems: Problems,
    *, keys: tuple[str, str] = ("scene", "case"),
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Score jobs, append a line each to `pairs.jsonl`, and write `pairs.csv`, with ids under `keys`."""
    scores: dict[str, dict[str, float]] = {}
    for column, own in metrics.foreign.items():
        if lacking := [job.id for job in jobs if job.id not in own.numbers]:
            few = f"{len(lacking)} of {len(jobs)} texts lack one"
            raise InputError(f"{own.path}: no {column} of {lacking[0]} ({few})")

    def collect(job: Job, record: Record, resumed: bool) -> None:
        if "error" in record:
            problems.add(f"{job.id}: {record['error']}: not scored")
        else:
            theirs = {name: own.numbers[job.id] for name, own in metrics.foreign.items()}
            scores[job.id] = {name: record[name] for name in metrics.columns if name not in theirs} | theirs

    def check(place: str, job: Job, record: Record) -> None:
        # First the texts: where they are others, the signature has another idf too, and says less.
        check_texts(place, record, hash_texts(job.references, job.generated))
        check_signature(place, record.get("signature"), metrics.signature)

    run_resumable(
        JobFiles(out.folder / "pairs.jsonl", out.resume, out.overwrite),
        Items(jobs, len(jobs), attrgetter("id"), check), partial(_score_blocks, metrics), collect,
        bar=partial(progress_bar, unit="texts"),
    )  # fmt: skip
    write_pairs(out.folder, scores, metrics.columns, keys)
    return scores


def _score_blocks(metrics: Metrics, jobs: Iterator[Job]) -> Iterator[list[tuple[Job, Record]]]:
    while block := list(islice(jobs, _BLOCK)):
        yield [(job, _record(job, scores, metrics.signature)) for job, scores in metrics.score(block)]


def _record(job: Job, scores: Scored, signature: str) -> Record:
    columns = {"error": str(scores)} if isinstance(scores, TextError) else scores
    texts = hash_texts(job.references, job.generated)
    return {"id": job.id, "signature": signature, **columns, "texts": texts}
