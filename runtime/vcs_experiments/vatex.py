"""Measures how well VCS_short follows human ratings of captions (papers, Table 2: VATEX-EVAL)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Problems, finite_number
from vcs_experiments.metrics.scoring import Job, KnownMetrics, Metrics, column
from vcs_experiments.results import Output, Results, run_jobs
from vcs_numba import Params
from vcs_runtime.comparing.latex import Heading, Number, latex_table
from vcs_runtime.comparing.tables import Cell, Table
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.scorer import Scorer

# The published names of the scores, and ours: those that change with the tolerance, and those that
# do not. The margin is not among the published ones.
_TOLERANT = {"VCS": "vcs", "margin": "margin", "NAS": "nas", "NAS-D": "nas_d", "NAS-L": "nas_l"}
_FIXED = {"GAS": "gas", "LAS": "las"}
REFERENCES = (1, 9)
_OWN = re.compile(r" [0-9]+ref$")
_GROUPS = {"1ref": "1 reference", "9ref": "9 references", "": "as given"}


@dataclass(frozen=True, slots=True)
class Video:
    """A video of VATEX-EVAL."""

    id: str
    references: list[str]
    candidates: list[str]
    ratings: list[list[float]]  # by candidate, then by rater


def read_vatex(path: Path, problems: Problems) -> list[Video]:
    """Read rated captions; what cannot be used becomes a problem."""
    videos = []
    raters = 0
    for number, row in read_jsonl(path):
        place = f"{path} line {number}"
        if not isinstance(row, dict) or not {"vid", "refs", "cands", "scores"} <= row.keys():
            raise InputError(
                f"{place}: unknown dataset format: an object with vid, refs, cands and scores was"
                " expected"
            )
        if not all(isinstance(row[key], list) for key in ("refs", "cands", "scores")):
            raise InputError(
                f"{place}: unknown dataset format: refs, cands and scores must be lists"
            )
        references = (
            row["refs"][0] if row["refs"] and isinstance(row["refs"][0], list) else row["refs"]
        )
        references = [text for text in references if isinstance(text, str) and text.strip()]
        if not references:
            problems.add(f"{place} ({row['vid']}): no reference: the video is left out")
            continue
        rated: list[tuple[str, list[float]]] = []
        for i, (text, ratings) in enumerate(zip(row["cands"], row["scores"], strict=False)):
            numbers = (
                [finite_number(rating) for rating in ratings]
                if isinstance(ratings, list)
                else [None]
            )
            good = [value for value in numbers if value is not None]
            if len(good) == len(numbers):
                raters = raters or len(good)
            if not isinstance(text, str) or not text.strip():
                problems.add(f"{place} ({row['vid']}): candidate {i} is empty: left out")
            elif len(good) != len(numbers) or len(good) != raters:
                problems.add(
                    f"{place} ({row['vid']}): ratings {ratings} of candidate {i}: a number "
                    "from every rater was expected: left out"
                )
            else:
                rated.append((text, good))
        if len(row["cands"]) != len(row["scores"]):
            problems.add(
                f"{place} ({row['vid']}): {len(row['cands'])} candidates, ratings of"
                f" {len(row['scores'])}"
            )
        if rated:
            candidates, ratings = [text for text, _ in rated], [numbers for _, numbers in rated]
            videos.append(Video(str(row["vid"]), references, candidates, ratings))
    if not videos:
        raise InputError(f"{path}: no video with a rated candidate")
    return videos


class ShortMetrics(Metrics):
    """VCS_short, its components and the known metrics, with the first and with all nine references.

    Each score is the best over the references, taken for each component by itself, as the authors
    did.
    """

    def __init__(self, scorer: Scorer, known: KnownMetrics, *, lcts: Sequence[float]) -> None:
        super().__init__(
            scorer, known, Options(params=Params(lct=lcts[0]), short=True), lcts, REFERENCES
        )
        own = [f"{name}_{lct}" for name in _TOLERANT for lct in self._params]
        names = (*own, *_FIXED, *known.columns)
        self.columns = tuple(column(name, first) for first in REFERENCES for name in names)

    def _scores(self, result: Result, evidence: Evidence) -> dict[str, float]:
        records = self._records(evidence)
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
    """Score every candidate, and correlate the scores with each rater.

    The interval is over videos: the bootstrap draws all candidates of a video together.
    """
    rated = {
        f"{video.id}/{i}": (
            Job(f"{video.id}/{i}", tuple(video.references), text),
            video.id,
            ratings,
        )
        for video in videos
        for i, (text, ratings) in enumerate(zip(video.candidates, video.ratings, strict=True))
    }
    jobs = [job for job, _, _ in rated.values()]
    scores_by_id = run_jobs(jobs, metrics, out, problems)
    ratings = np.array([rated[name][2] for name in scores_by_id]).reshape(len(scores_by_id), -1)
    groups = [rated[name][1] for name in scores_by_id]
    rows: list[tuple[Cell, ...]] = []
    for heading in metrics.columns if scores_by_id else ():
        scores = np.array([own[heading] for own in scores_by_id.values()])
        name, _, count = heading.rpartition(" ") if _OWN.search(heading) else (heading, "", "")
        row: list[Cell] = [name, count, len(scores)]
        for measure in (statistics.kendall, statistics.spearman):
            value = statistics.rated(
                measure, scores, ratings, groups, resamples=resamples, seed=seed
            )
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
    return Results(
        "vatex",
        metrics.signature,
        options,
        counts,
        problems.messages,
        tables=[table],
        latex={"correlation": _latex(rows, metrics, raters)} if rows else {},
    )


def _latex(rows: Sequence[tuple[Cell, ...]], metrics: ShortMetrics, raters: Sequence[str]) -> str:
    """Return the correlations in the form of the papers' Table 2.

    Each metric has a row, and the best value of each column is bold.
    """
    at = {"\u03c4": 3, "\u03c1": 3 + 3 + len(raters)}
    counts = list(dict.fromkeys(str(row[1]) for row in rows))
    columns = [(count, name) for count in counts for name in at]
    values: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        own = {(str(row[1]), name): 100 * float(row[place] or 0) for name, place in at.items()}
        # Scores that are all equal have no correlation.
        values.setdefault(str(row[0]), {}).update(
            (key, value) for key, value in own.items() if value == value
        )
    best = {
        key: max((own[key] for own in values.values() if key in own), default=0.0)
        for key in columns
    }
    lines = [
        [
            name,
            *(
                Number(f"{own[key]:.1f}", bold=own[key] == best[key]) if key in own else ""
                for key in columns
            ),
        ]
        for name, own in values.items()
    ]
    headings = [
        Heading("", "metric"),
        *(Heading(_GROUPS.get(count, count), name) for count, name in columns),
    ]
    caption = (
        "Kendall's τ-b and Spearman's ρ with human ratings, the mean over raters, times 100. "
        "The best one is bold."
    )
    return latex_table(
        headings, lines, caption=caption, label="correlation", comments=[metrics.signature]
    )
