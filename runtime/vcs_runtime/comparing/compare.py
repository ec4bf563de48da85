"""Compares score files of several systems over the pairs that all of them have scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vcs_runtime.comparing.statistics import Values
from vcs_runtime.comparing.systems import (
    CORRECTIONS,
    FAMILIES,
    Comparison,
    Counts,
    Significance,
    compare_systems,
)
from vcs_runtime.errors import InputError, unknown_choice
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.jobs.readers.input_file import files_of
from vcs_runtime.jobs.score_files import check_signatures, read_scores
from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.scoring import score_table
from vcs_runtime.scoring.flags import scores_to_report, what_to_report


def compare(
    files: Sequence[Path],
    *,
    names: Sequence[str] = (),
    baseline: str | None = None,
    scores: Sequence[str] = (),
    correction: str = "holm",
    family: str = "score",
    all_pairs: bool = False,
    moved: int = 10,
    force: bool = False,
    resamples: int | None = None,
    seed: int = SEED,
) -> Comparison:
    """Compare outputs of `vcs-runtime score`, one a system, over the ids that all have scored.

    `baseline` is a name or a file. Without `scores` the systems are compared by VCS, or by the
    margin if VCS is 0 for most pairs. Raises InputError for files that cannot be compared, and
    ValueError for an argument.
    """
    _check_choices(scores, correction, family)
    files = files_of(files)
    systems = _named(files, names)
    first = _find(baseline, systems)
    required = tuple(dict.fromkeys(("vcs", *scores)))
    read = {name: _read(path, required, (*required, "margin")) for name, path in systems.items()}
    if not force:
        check_signatures({path: read[name].signature for name, path in systems.items()}, required)
    # In the order of the baseline, so that the draws do not depend on the order of the files.
    common = [id_ for id_ in read[first].rows if all(id_ in each.rows for each in read.values())]
    if not common:
        raise InputError(f"no id has a score in all of these files: {', '.join(map(str, files))}")
    columns = {}
    for score in (*required, "margin"):
        columns[score] = {name: system.column(score, common) for name, system in read.items()}
    reason = ""
    if not scores:
        scores, reason = _choose_score(columns)
    known: dict[str, None] = {}  # ids in the order of the files
    for system in read.values():
        known.update(dict.fromkeys((*system.rows, *system.failed)))
    counts = {}
    for name, system in read.items():
        missing = len(known) - len(system.failed) - len(system.rows)
        counts[name] = Counts(len(system.failed), missing, _zeros(columns["vcs"][name]))
    comparison = compare_systems(
        {score: columns[score] for score in scores},
        counts,
        {name: system.signature for name, system in read.items()},
        first,
        Significance(correction, family, all_pairs, resamples, seed),
    )
    segmenters = {}
    for name, system in read.items():
        segmenters[name] = {id_: system.segmenters[id_] for id_ in common}
    return replace(
        comparison,
        reason=reason,
        moved=_moved(columns[scores[0]], first, common, moved) if len(systems) == 2 else [],
        left_out=_left_out(known, read),
        mix=Mix.of(segmenters),
    )


def _check_choices(scores: Sequence[str], correction: str, family: str) -> None:
    for score in scores:
        if score not in score_table.ALL:
            raise unknown_choice("score", score, tuple(score_table.ALL))
    if correction not in CORRECTIONS:
        raise unknown_choice("correction", correction, CORRECTIONS)
    if family not in FAMILIES:
        raise unknown_choice("family", family, FAMILIES)


def _choose_score(columns: Mapping[str, Mapping[str, Values]]) -> tuple[list[str], str]:
    """Return the score to compare, and the reason if it is not VCS."""
    vcs = columns["vcs"].values()
    zeros = sum(map(_zeros, vcs))
    total = sum(map(len, vcs))
    best = scores_to_report(zeros, total)[0]
    # Files need not have a margin.
    if best != "vcs" and all(np.isfinite(values).all() for values in columns[best].values()):
        return [best], what_to_report(zeros, total)
    return ["vcs"], ""


def _zeros(vcs: Values) -> int:
    return int((vcs <= 0).sum())


@dataclass
class _Scores:
    """Contents of a score file: signature, scores and segmenters by id, and ids without scores."""

    signature: str = ""
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    segmenters: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def column(self, score: str, ids: Sequence[str]) -> Values:
        """Return a score of these ids, in their order."""
        return np.array([self.rows[id_][score] for id_ in ids])


def _left_out(ids: Iterable[str], read: Mapping[str, _Scores]) -> dict[str, list[str]]:
    """Return the systems without a score for an id, by id."""
    left_out = {}
    for id_ in ids:
        without = [name for name, system in read.items() if id_ not in system.rows]
        if without:
            left_out[id_] = without
    return left_out


def _read(path: Path, required: Sequence[str], names: Sequence[str]) -> _Scores:
    """Read a score file. A score that is not required is NaN where it is missing."""
    scores = _Scores()
    for place, row in read_scores(path, required, pipe=True):
        name, scores.signature = str(row["id"]), str(row["signature"])
        if name in scores.rows or name in scores.failed:
            raise InputError(f"{place}: id {name} occurs twice")
        if "error" in row:
            scores.failed.add(name)
        else:
            scores.segmenters[name] = row.get("segmenter") or ""
            scores.rows[name] = {score: float(row.get(score, np.nan)) for score in names}
    return scores


def _named(files: Sequence[Path], names: Sequence[str]) -> dict[str, Path]:
    """Name the systems. Raises ValueError if the names do not fit the files."""
    if len(files) < 2:
        raise ValueError("give at least two score files")
    if not names:
        stems = [path.stem for path in files]
        names = [path.stem if stems.count(path.stem) == 1 else str(path) for path in files]
    elif len(names) != len(files):
        raise ValueError(f"give a name for each of the {len(files)} files, not {len(names)}")
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"two systems are called {name!r}: name them with --name")
    return dict(zip(names, files, strict=True))


def _find(baseline: str | None, systems: Mapping[str, Path]) -> str:
    """Find a system by its name or file. Raises ValueError if there is no such system."""
    if baseline is None:
        return next(iter(systems))
    if baseline not in systems:
        for name, path in systems.items():
            if path == Path(baseline):
                return name
        begin_so = [name for name in systems if name.startswith(baseline)]
        if len(begin_so) == 1:
            return begin_so[0]
        raise unknown_choice("baseline", baseline, tuple(systems))
    return baseline


def _moved(
    values: Mapping[str, Values], baseline: str, ids: Sequence[str], count: int
) -> list[tuple[str, float, float]]:
    """List the pairs that differ most between two systems; equal ones are left out."""
    [other] = [name for name in values if name != baseline]
    a, b = values[baseline], values[other]
    order = np.argsort(-np.abs(b - a), kind="stable")[:count]
    return [(ids[i], float(a[i]), float(b[i])) for i in order if a[i] != b[i]]
