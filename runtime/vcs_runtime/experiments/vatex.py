"""Does VCS_short follow human ratings of captions? (papers, Table 2: VATEX-EVAL)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from vcs_numba import Params
from vcs_runtime.errors import TextError
from vcs_runtime.experiments import statistics
from vcs_runtime.experiments.datasets import Problems, Video
from vcs_runtime.experiments.results import Cell, Results, Table
from vcs_runtime.experiments.running import Output, run_jobs
from vcs_runtime.experiments.scoring import Job, KnownMetrics, Scored, merge
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer

# The published names of the scores, and ours.
_COMPONENTS = {"VCS": "vcs", "GAS": "gas", "LAS": "las", "NAS": "nas", "NAS-D": "nas_d", "NAS-L": "nas_l"}
REFERENCES = (1, 9)


class ShortMetrics:
    """VCS_short and its components beside the known metrics, with the first reference and with all nine.

    Each score is the best over the references, each component's own, as the authors took it.
    """

    def __init__(self, scorer: Scorer, known: KnownMetrics, *, lct: float = 0.0) -> None:
        self._scorer = scorer
        self._known = known
        self._options = Options(params=Params(lct=lct), short=True)
        names = (*known.columns, *_COMPONENTS)
        self.columns = tuple(_column(name, count) for count in REFERENCES for name in names)
        line = scorer.signature_for(self._options)
        self.signature = f"{line}|{known.signature}"

    def score(self, jobs: Sequence[Job]) -> list[Scored]:
        """The scores of each job by column, or why it has none."""
        fewer = [[replace(job, references=job.references[:count]) for job in jobs] for count in REFERENCES]
        known = [self._known.start(some) for some in fewer]
        results = self._single(jobs)
        found: list[Scored] = []
        for job in jobs:
            single = list(islice(results, len(job.references)))
            merged = [
                merge(single[:count], next(others)) for count, others in zip(REFERENCES, known, strict=True)
            ]
            scores: dict[str, float] = {}
            for count, part in zip(REFERENCES, merged, strict=True):
                if isinstance(part, TextError):
                    found.append(part)
                    break
                scores |= {_column(name, count): value for name, value in part.items()}
            else:
                found.append(scores)
        return found

    def _single(self, jobs: Sequence[Job]) -> Iterator[Scored]:
        pairs = [(reference, job.generated) for job in jobs for reference in job.references]
        for result in self._scorer.iter_scores(pairs, self._options):
            if result.scores is None:
                yield TextError(result.error or "not scored")
            else:
                yield {name: getattr(result.scores, own) for name, own in _COMPONENTS.items()}


def run(
    videos: Sequence[Video],
    metrics: ShortMetrics,
    out: Output,
    problems: Problems,
    *,
    resamples: int = 1000,
    seed: int = statistics.SEED,
) -> Results:
    """Score every candidate, correlate with each rater, and write the results.

    The interval is over videos: candidates of one video are not drawn apart.
    """
    rated = {
        f"{video.id}/{i}": (Job(f"{video.id}/{i}", tuple(video.references), text), video.id, ratings)
        for video in videos
        for i, (text, ratings) in enumerate(zip(video.candidates, video.ratings, strict=True))
    }
    jobs = [job for job, _, _ in rated.values()]
    found = run_jobs(jobs, metrics, out, problems)
    ratings = np.array([rated[name][2] for name in found]).reshape(len(found), -1)
    groups = [rated[name][1] for name in found]
    rows: list[tuple[Cell, ...]] = []
    for column in metrics.columns if found else ():
        scores = np.array([scores[column] for scores in found.values()])
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
    counts = {"candidates": len(jobs), "scored": len(found), "videos": len(videos)}
    options = {"resamples": resamples, "seed": seed}
    results = Results("vatex", metrics.signature, options, counts, problems.found, tables=[table])
    results.write(out.folder)
    return results


def _column(name: str, count: int) -> str:
    return f"{name} {count}ref"
