"""Measures how well VCS_short follows human ratings of captions (papers, Table 2: VATEX-EVAL)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

# Our fields by the published names of scores, with and without an effect of the tolerance. The
# margin is ours alone.
_TOLERANT = {"VCS": "vcs", "margin": "margin", "NAS": "nas", "NAS-D": "nas_d", "NAS-L": "nas_l"}
_FIXED = {"GAS": "gas", "LAS": "las", "SAS": "sas"}
REFERENCES = (1, 9)
_COUNTED = re.compile(r" [0-9]+ref$")  # the columns of ours, by their number of references
_GROUPS = {"1ref": "1 reference", "9ref": "9 references", "": "as given"}


@dataclass(frozen=True, slots=True)
class Video:
    """A video of VATEX-EVAL."""

    id: str
    references: list[str]
    candidates: list[str]
    ratings: list[list[float]]  # by candidate, then by rater


def read_vatex(path: Path, problems: Problems) -> list[Video]:
    """Read rated captions; report unusable ones as problems."""
    videos = []
    raters = 0  # the first rated candidate decides how many there are
    for number, row in read_jsonl(path):
        place = f"{path} line {number}"
        _check_row(place, row)
        place = f"{place} ({row['vid']})"
        references = _references(row)
        if not references:
            problems.add(f"{place}: the video has no reference and is left out")
            continue
        candidates, ratings = [], []
        for i, (text, values) in enumerate(zip(row["cands"], row["scores"], strict=False)):
            numbers = _ratings(values)
            if numbers is not None:
                raters = raters or len(numbers)
            if not isinstance(text, str) or not text.strip():
                problems.add(f"{place}: candidate {i} is empty: left out")
            elif numbers is None or len(numbers) != raters:
                problems.add(
                    f"{place}: candidate {i} is left out, because its ratings {values} must be a"
                    " number from every rater"
                )
            else:
                candidates.append(text)
                ratings.append(numbers)
        if len(row["cands"]) != len(row["scores"]):
            problems.add(
                f"{place}: {len(row['cands'])} candidates, but ratings of {len(row['scores'])}"
            )
        if candidates:
            videos.append(Video(str(row["vid"]), references, candidates, ratings))
    if not videos:
        raise InputError(f"{path}: no video has a rated candidate")
    return videos


def _check_row(place: str, row: Any) -> None:
    """Raise InputError for a line that is not of VATEX-EVAL."""
    if not isinstance(row, dict) or not {"vid", "refs", "cands", "scores"} <= row.keys():
        raise InputError(
            f"{place}: unknown dataset format: it must be an object with vid, refs, cands and"
            " scores"
        )
    if not all(isinstance(row[key], list) for key in ("refs", "cands", "scores")):
        raise InputError(f"{place}: unknown dataset format: refs, cands and scores must be lists")


def _references(row: Mapping[str, Any]) -> list[str]:
    """Return the references of a line, which may stand in a list of lists."""
    references = row["refs"]
    if references and isinstance(references[0], list):
        references = references[0]
    return [text for text in references if isinstance(text, str) and text.strip()]


def _ratings(values: Any) -> list[float] | None:
    """Return ratings as numbers; None if one of them is not a number."""
    if not isinstance(values, list):
        return None
    numbers = []
    for value in values:
        number = finite_number(value)
        if number is None:
            return None
        numbers.append(number)
    return numbers


class ShortMetrics(Metrics):
    """VCS_short, its components and the known metrics, with the first and with all nine references.

    Each score is the best over the references, taken for each component by itself, as the authors
    did.
    """

    def __init__(self, scorer: Scorer, known: KnownMetrics, *, lcts: Sequence[float]) -> None:
        super().__init__(
            scorer, known, Options(params=Params(lct=lcts[0]), short=True), lcts, REFERENCES
        )
        names = [f"{name}_{lct}" for name in _TOLERANT for lct in self._params]
        names += [*_FIXED, *known.columns]
        self.columns = tuple(column(name, first) for first in REFERENCES for name in names)

    def _scores(self, result: Result, evidence: Evidence) -> dict[str, float]:
        records = self._records(evidence)
        first = next(iter(records.values()))
        scores = {name: float(first[field]) for name, field in _FIXED.items()}
        for lct, record in records.items():
            for name, field in _TOLERANT.items():
                scores[f"{name}_{lct}"] = float(record[field])
        return scores


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
    jobs: dict[str, Job] = {}
    ratings_by_id: dict[str, Sequence[float]] = {}
    videos_by_id: dict[str, str] = {}
    for video in videos:
        for i, (text, numbers) in enumerate(zip(video.candidates, video.ratings, strict=True)):
            name = f"{video.id}/{i}"
            jobs[name] = Job(name, tuple(video.references), text)
            ratings_by_id[name], videos_by_id[name] = numbers, video.id
    scores_by_id = run_jobs(list(jobs.values()), metrics, out, problems)
    ratings = np.array([ratings_by_id[name] for name in scores_by_id])
    ratings = ratings.reshape(len(scores_by_id), -1)
    groups = [videos_by_id[name] for name in scores_by_id]
    rows: list[tuple[Cell, ...]] = []
    for heading in metrics.columns if scores_by_id else ():
        scores = np.array([by_column[heading] for by_column in scores_by_id.values()])
        name, count = heading, ""
        if _COUNTED.search(heading):
            name, _, count = heading.rpartition(" ")
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
    places = {"\u03c4": 3, "\u03c1": 3 + 3 + len(raters)}  # of the means in a row
    values: dict[str, dict[tuple[str, str], float]] = {}  # by metric, then by column
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        metric, count = str(row[0]), str(row[1])
        by_column = values.setdefault(metric, {})
        for measure, place in places.items():
            key = count, measure
            best.setdefault(key, 0.0)
            value = 100 * float(row[place] or 0)
            if not math.isnan(value):  # scores that are all equal have no correlation
                by_column[key] = value
    for key in best:
        known = [by_column[key] for by_column in values.values() if key in by_column]
        best[key] = max(known, default=0.0)
    lines: list[list[str | Number]] = []
    for metric, by_column in values.items():
        line: list[str | Number] = [metric]
        for key, highest in best.items():
            if key in by_column:
                value = by_column[key]
                line.append(Number(f"{value:.1f}", bold=value == highest))
            else:
                line.append("")
        lines.append(line)
    headings = [Heading("", "metric")]
    headings += [Heading(_GROUPS.get(count, count), measure) for count, measure in best]
    caption = (
        "Kendall's τ-b and Spearman's ρ with human ratings, mean over raters, times 100. The"
        " highest value is bold."
    )
    return latex_table(
        headings, lines, caption=caption, label="correlation", comments=[metrics.signature]
    )
