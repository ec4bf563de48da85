"""The scores that the authors have published, in CSV files (docs/guide/experiments.md)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from vcs_experiments.datasets.texts import Problems, finite_number, scene_key
from vcs_runtime.errors import InputError
from vcs_runtime.util.presence import is_folder
from vcs_runtime.util.reading import read_whole

# In the authors' repository complete results stand beside those of a first part, which has the shorter name.
_RESULTS = ("results/mpii/{}_complete_results/individual_results", "results/mpii/{}/individual_results")
_PUBLISHED = ("{}-published", *_RESULTS, *(f"exp/{folder}" for folder in _RESULTS))


def find_published(root: Path, kind: str) -> Path | None:
    """Find the folder of the published scores of a kind ("comparison") under a root, if there is one."""
    folders = (root / pattern.format(kind) for pattern in _PUBLISHED)
    return next((folder for folder in folders if any(folder.glob("**/*.csv"))), None)


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
                if case != "Metric" and (value := finite_number(text)) is not None:
                    scores.setdefault(f"{path.stem}/{case}", {})[row["Metric"]] = value
                elif case != "Metric":
                    problems.add(f"{path}, {row['Metric']}, {case}: {text!r} is no number: left out")
    return scores


def read_published_authors(path: Path, problems: Problems) -> dict[str, dict[str, float]]:
    """Read the scores of pairs of authors, by "SCENE/A1-A2", from one file or a folder with A1/A1_SCENE.csv.

    Missing columns are an InputError.
    """
    scores: dict[str, dict[str, float]] = {}
    for file in sorted(path.glob("**/*.csv")) if is_folder(path) else [path]:
        for row in _read_csv(file):
            if file != path:
                row.setdefault("scene", file.stem.rpartition("_")[2])
            if not {"scene", "Comparison"} <= row.keys():
                raise InputError(f"{file}: unknown dataset format: no columns 'scene' and 'Comparison'")
            name = f"{row.pop('scene')}/{row.pop('Comparison')}"
            for metric, text in row.items():
                if (value := finite_number(text)) is not None:
                    scores.setdefault(name, {})[metric] = value
                else:
                    problems.add(f"{file}, {name}, {metric}: {text!r} is no number: left out")
    return scores


def _read_csv(path: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(io.StringIO(read_whole(path).decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not CSV: {error}") from None
