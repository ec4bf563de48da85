"""Scores computed elsewhere: the authors' published scores, and columns of other metrics."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vcs_experiments.datasets.texts import Problems, finite_number, scene_key
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.readers.rows import RowError
from vcs_runtime.util.presence import is_folder
from vcs_runtime.util.reading import read_whole

# In the authors' repository complete results stand beside the results of a first part, whose name
# is shorter.
_RESULTS = (
    "results/mpii/{}_complete_results/individual_results",
    "results/mpii/{}/individual_results",
)
_PUBLISHED = ("{}-published", *_RESULTS, *(f"exp/{folder}" for folder in _RESULTS))


def find_published(root: Path, kind: str) -> Path | None:
    """Return the folder of published scores of a kind ("comparison") under a root, or None."""
    for pattern in _PUBLISHED:
        folder = root / pattern.format(kind)
        if any(folder.glob("**/*.csv")):
            return folder
    return None


def scenes_of(published: Iterable[str]) -> set[str]:
    """Return the scenes of ids "SCENE/CASE"."""
    return {name.partition("/")[0] for name in published}


def read_published(folder: Path, problems: Problems) -> dict[str, dict[str, float]]:
    """Read the scores of rewrites, by "SCENE/CASE", from a folder of SCENE.csv."""
    scores: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("*.csv"), key=lambda path: scene_key(path.stem)):
        rows = _read_csv(path)
        if not rows or "Metric" not in rows[0]:
            problems.add(f"{path}: no column 'Metric': left out")
            continue
        for row in rows:
            for case, text in row.items():
                if case == "Metric":
                    continue
                value = finite_number(text)
                if value is None:
                    problems.add(
                        f"{path}, {row['Metric']}, {case}: {text!r} is not a number: left out"
                    )
                else:
                    scores.setdefault(f"{path.stem}/{case}", {})[row["Metric"]] = value
    return scores


def read_published_authors(path: Path, problems: Problems) -> dict[str, dict[str, float]]:
    """Read the scores of author pairs, by "SCENE/A1-A2".

    `path` is a file, or a folder with A1/A1_SCENE.csv.
    """
    scores: dict[str, dict[str, float]] = {}
    for file in sorted(path.glob("**/*.csv")) if is_folder(path) else [path]:
        for row in _read_csv(file):
            if file != path:
                row.setdefault("scene", file.stem.rpartition("_")[2])
            if not {"scene", "Comparison"} <= row.keys():
                raise InputError(
                    f"{file}: unknown dataset format: no columns 'scene' and 'Comparison'"
                )
            name = f"{row.pop('scene')}/{row.pop('Comparison')}"
            for metric, text in row.items():
                value = finite_number(text)
                if value is None:
                    problems.add(f"{file}, {name}, {metric}: {text!r} is not a number: left out")
                else:
                    scores.setdefault(name, {})[metric] = value
    return scores


def _read_csv(path: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(io.StringIO(read_whole(path).decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not CSV: {error}") from None


# The parts of an id, as `pairs.csv` has them; `id` alone may hold both.
_FIRST, _LAST = ("model", "scene", "vid"), ("case", "id")


@dataclass(frozen=True)
class Foreign:
    """A column of scores by text id, and the file that the scores come from.

    The ids are those in `pairs.jsonl`.
    """

    path: Path
    numbers: dict[str, float]


def read_column(name: str, path: Path) -> Foreign:
    """Read the column `name` of a file with ids, or the file's only column of scores.

    Raise InputError for a row without an id or a score.
    """
    file, numbers = InputFile(path), dict[str, float]()
    try:
        for place, row in file.rows("id"):
            there = ", ".join(map(repr, row))
            first = [str(row.pop(key)) for key in _FIRST if key in row][:1]
            last = [str(row.pop(key)) for key in _LAST if key in row][:1]
            if not last:
                raise RowError(f"{place}: no 'id', only {there}")
            if name not in row and len(row) != 1:
                raise RowError(
                    f"{place}: neither {name!r} nor exactly one column of scores (it has {there})"
                )
            key = name if name in row else next(iter(row))
            number, id_ = finite_number(row[key]), "/".join(first + last)
            if number is None:
                raise RowError(f"{place}: {key} of {id_} must be a number, not {row[key]!r}")
            if id_ in numbers:
                raise RowError(f"{place}: id {id_} occurs twice")
            numbers[id_] = number
    except (RowError, OSError) as error:
        raise file.error(error) from None
    if not numbers:
        raise InputError(f"{path}: the file holds no scores")
    return Foreign(path, numbers)
