"""Measures how well VCS_short follows human ratings of captions (papers, Table 2: VATEX-EVAL)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Problems, finite_number
from vcs_experiments.metrics.scoring import (
    Job,
    KnownMetrics,
    Scored,
    merge,
    realign,
    tolerances,
)
from vcs_experiments.results import Results
from vcs_experiments.running import Output, run_jobs
from vcs_numba import Params
from vcs_runtime.comparing.tables import Cell, Table
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.scorer import Scorer

# The published names of the scores, and ours: those that change with the tolerance, and those that do not.
# The margin is not among the published ones.
_TOLERANT = {"VCS": "vcs", "margin": "margin", "NAS": "nas", "NAS-D": "nas_d", "NAS-L": "nas_l"}
_FIXED = {"GAS": "gas", "LAS": "las"}
REFERENCES = (1, 9)


@dataclass(frozen=True, slots=True)
class Video:
    """A video of VATEX-EVAL."""

    id: str
    references: list[str]
    candidates: list[str]
    ratings: list[list[float]]


def read_vatex(path: Path, problems: Problems) -> list[Video]:
    """Read rated captions."""
    videos = []
    raters = 0
    for number, row in read_jsonl(path):
        place = f"{path} line {number}"
        if not isinstance(row, dict) or not {"vid", "refs", "cands", "scores"} <= row.keys():
            raise InputError(
                f"{place}: unknown dataset format: an object with vid, refs, cands and scores was expected"
            )
        if not all(isinstance(row[key], list) for key in ("refs", "cands", "scores")):
            raise InputError(f"{place}: unknown dataset format: refs, cands and scores must be lists")
        references = row["refs"][0] if row["refs"] and isinstance(row["refs"][0], list) else row["refs"]
        references = [text for text in references if isinstance(text, str) and text.strip()]
        if not references:
            problems.add(f"{place} ({row['vid']}): no reference: the video is left out")
            continue
        rated: list[tuple[str, list[float]]] = []
        for i, (text, ratings) in enumerate(zip(row["cands"], row["scores"], strict=False)):
            numbers = [finite_number(rating) for rating in ratings] if isinstance(ratings, list) else [None]
            good = [value for value in numbers if value is not None]
            if len(good) == len(numbers):
                raters = raters or len(good)
            if not isinstance(text, str) or not text.strip():
                problems.add(f"{place} ({row['vid']}): candidate {i} is empty: left out")
            elif len(good) != len(numbers) or len(good) != raters:
                problems.add(f"{place} ({row['vid']}): ratings {ratings} of candidate {i}: a number "
                             "from every rater was expected: left out")  # fmt: skip
            else:
                rated.append((text, good))
        if len(row["cands"]) != len(row["scores"]):
            problems.add(
                f"{place} ({row['vid']}): {len(row['cands'])} candidates, ratings of {len(row['scores'])}"
            )
        if rated:
            candidates, ratings = [text for text, _ in rated], [numbers for _, numbers in rated]
            videos.append(Video(str(row["vid"]), references, candidates, ratings))
    if not videos:
        raise InputError(f"{path}: no video with a rated candidate")
    return videos


class ShortMetrics:
    """VCS_short and its components beside the known metrics, with the first reference and with all nine.

    Each score is the best over the references, taken for each component by itself, as the authors did.
    """

    def __init__(self, scorer: Scorer, known: KnownMetrics, *, lcts: Sequence[float]) -> None:
        self._scorer = scorer
        self._known = known
        self._params = {f"LCT{lct:g}": Params(lct=lct) for lct in lcts}
        self._options = Options(params=Params(lct=lcts[0]), short=True)
        own = [f"{name}_{lct}" for name in _TOLERANT for lct in self._params]
        names = (*own, *_FIXED, *known.columns)
        self.columns = tuple(_column(name, count) for count in REFERENCES for name in names)
        self.signature = f"{scorer.signature_for(self._options)}|{tolerances(lcts)}|{known.signature}"

    def score(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Scored]]:
        """Score jobs; each comes back with its scores, in order."""
        tasks: list[tuple[Job, dict[int, Callable[[], Scored]], list[Scored]]] = [
            (job, {count: self._known.start(job, count) for count in REFERENCES}, []) for job in jobs
        ]
        pairs = [
            (single, (reference, job.generated)) for job, _, single in tasks for reference in job.references
        ]
        for block in self._scorer.stream(pairs, itemgetter(1), self._options):
            for (single, _), result, evidence in block:
                single.append(self._components(result, evidence))
        for job, known, single in tasks:
            scores: dict[str, float] = {}
            error: TextError | None = None
            for count, others in known.items():
                part = merge(single[:count], others())
                if isinstance(part, TextError):
                    error = error or part
                else:
                    scores |= {_column(name, count): value for name, value in part.items()}
            yield job, error or scores

    def _components(self, result: Result, evidence: Evidence | None) -> Scored:
        if evidence is None:
            return TextError(result.error)
        records = {lct: realign([evidence], params)[0] for lct, params in self._params.items()}
        first = next(iter(records.values()))
        fixed = {name: float(first[own]) for name, own in _FIXED.items()}
        return fixed | {
            f"{name}_{lct}": float(record[own])
            for lct, record in records.items()
            for name, own in _TOLERANT.items()
        }


def run(
    videos: Sequence[Video],
    metrics: ShortMetrics,
    out: Output,
    problems: Problems,
    *,
    resamples: int = 1000,
    seed: int = SEED,
) -> Results:
    """Score every candidate, correlate the scores with each rater, and write the results.

    The interval is over videos: the bootstrap draws all candidates of a video together.
    """
    rated = {
        f"{video.id}/{i}": (Job(f"{video.id}/{i}", tuple(video.references), text), video.id, ratings)
        for video in videos
        for i, (text, ratings) in enumerate(zip(video.candidates, video.ratings, strict=True))
    }
    jobs = [job for job, _, _ in rated.values()]
    scores_by_id = run_jobs(jobs, metrics, out, problems)
    ratings = np.array([rated[name][2] for name in scores_by_id]).reshape(len(scores_by_id), -1)
    groups = [rated[name][1] for name in scores_by_id]
    rows: list[tuple[Cell, ...]] = []
    for column in metrics.columns if scores_by_id else ():
        scores = np.array([own[column] for own in scores_by_id.values()])
        name, _, count = column.rpartition(" ")
        row: list[Cell] = [name, count, len(scores)]
        for measure in (statistics.kendall, statistics.spearman):
            value = statistics.rated(measure, scores, ratings, groups, resamples=resamples, seed=seed)
            row += [value.mean, value.low, value.high, *value.by_rater]
        rows.append(tuple(row))
    raters = [f"rater {i + 1}" for i in range(ratings.shape[1])]
    columns = ["metric", "references", "n"]
    for name in ("Kendall tau-b", "Spearman rho"):
        columns += [name, f"{name} low", f"{name} high", *(f"{name} {rater}" for rater in raters)]
    note = f"Mean over raters; 95 % bootstrap interval over videos, {resamples} resamples."
    table = Table("correlation", "Correlation with human ratings", tuple(columns), rows, note)
    counts = {"candidates": len(jobs), "scored": len(scores_by_id), "videos": len(videos)}
    options = {"resamples": resamples, "seed": seed}
    results = Results("vatex", metrics.signature, options, counts, problems.messages, tables=[table])
    results.write(out.folder)
    return results


def _column(name: str, count: int) -> str:
    return f"{name} {count}ref"
