"""The data of CLIP-CC-Bench: its texts, its published results, and files that it accepts."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from vcs_experiments.datasets.texts import read_json
from vcs_experiments.leaderboard import ByJudge, Means
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.presence import changed_at, is_folder, is_regular_file

#: The judges of the benchmark, by the names of their folders.
JUDGES: Final = ("gte-qwen2-7b", "kalm", "nemo", "nv-embed", "qwen3-8b")
#: Where references and predictions lie: in a checkout of the benchmark, and in a user's folder.
_LAYOUTS: Final = (
    ("data/ground_truth/clip_cc_dataset.json", "data/models"),
    ("references.json", "predictions"),
)
_RESULTS: Final = "results/embedding_models/aggregated_results"
_ADDITIONS: Final = "results/leaderboard/additions"
_NAMES: Final = "results/leaderboard/models.json"


def find_texts(data: Path) -> tuple[Path, Path]:
    """Find the file of references and the folder of predictions.

    Raises InputError if they are not there.
    """
    for references, predictions in _LAYOUTS:
        if is_regular_file(data / references) and is_folder(data / predictions):
            return data / references, data / predictions
    wanted = " nor ".join(f"{file} and {folder}/" for file, folder in _LAYOUTS)
    raise InputError(f"{data}: the folder has neither {wanted}")


def read_published(folder: Path | None) -> tuple[ByJudge, dict[str, str], str]:
    """Read published means by judge and system, the systems' names, and the source.

    If `folder` is None, read the copy in the package.
    """
    if folder is None:
        return _packaged()
    root = folder / _RESULTS if is_folder(folder / _RESULTS) else folder
    paths = sorted((*root.glob("*/*.json"), *(folder / _ADDITIONS).glob("*/*.json")))
    if not paths:
        raise InputError(f"{folder}: the folder has no results of judges (JUDGE/SYSTEM.json)")
    means: dict[str, dict[str, Means]] = {}
    totals: dict[int, Path] = {}
    for path in paths:
        judge = means.setdefault(path.parent.name, {})
        if path.stem in judge:
            raise InputError(f"{path}: judge {path.parent.name} has two results of {path.stem}")
        total, judge[path.stem] = _read_result(path)
        totals.setdefault(total, path)
    if len(totals) > 1:
        (total, path), (other, there) = list(totals.items())[:2]
        raise InputError(f"{there} has results of {other} clips, but {path} of {total}")
    names = {}
    if (folder / _NAMES).is_file():
        models = read_json(folder / _NAMES).get("models", {})
        names = {system: str(entry.get("display", system)) for system, entry in models.items()}
    return means, names, str(folder)


def _packaged() -> tuple[ByJudge, dict[str, str], str]:
    means: dict[str, dict[str, Means]] = {}
    names = {}
    text = files("vcs_runtime").joinpath("data/clip-cc-bench.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        coarse, fine_f1, hm_cf = float(row["coarse"]), float(row["fine_f1"]), float(row["hm_cf"])
        means.setdefault(row["judge"], {})[row["system"]] = Means(coarse, fine_f1, hm_cf)
        names[row["system"]] = row["name"]
    return means, names, "CLIP-CC-Bench (arXiv:2608.04302), results of 2026-08-21"


def _read_result(path: Path) -> tuple[int, Means]:
    """Read a file of results: the number of clips, and the means."""
    value = read_json(path)
    try:
        total = value["total_evaluations"]
        if value.get("error_rate"):
            raise InputError(f"{path}: error_rate must be 0, not {value['error_rate']}")
        means = Means(
            float(value["coarse_grained_stats"]["mean"]),
            float(value["fine_grained_stats"]["f1"]["mean"]),
            float(value["hybrid_stats"]["hm_cf"]["mean"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a result of a judge: {error!r}") from None
    return total, means


def rounded(values: Sequence[float]) -> float:
    """Return the mean as the benchmark's files have it: rounded to 6 decimals."""
    return float(np.round(np.mean(values), 6))


def write_submission(
    path: Path, judge: str, system: str, records: Sequence[Record], scored: Path
) -> None:
    """Write one judge's results for a system in the benchmark's schema.

    The timestamp is the modification time of the file `scored`.
    """
    good = [record for record in records if "error" not in record]
    value: dict[str, Any] = {
        "decoder_name": judge,
        "model_name": system,
        "total_evaluations": len(records),
        "successful_evaluations": len(good),
        "error_rate": (len(records) - len(good)) / len(records),
    }
    if good:
        value["coarse_grained_stats"] = _statistics(good, "coarse")
        value["timestamp"] = changed_at(scored).isoformat()
        parts = ("precision", "recall", "f1")
        value["fine_grained_stats"] = {part: _statistics(good, f"fine_{part}") for part in parts}
        value["hybrid_stats"] = {"hm_cf": _statistics(good, "hm_cf")}
    write_whole(path, json.dumps(value, indent=2) + "\n")


def _statistics(records: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    values = [record[name] for record in records]
    return {
        "mean": rounded(values),
        "std": float(np.round(np.std(values), 6)),
        "min": float(np.round(min(values), 6)),
        "max": float(np.round(max(values), 6)),
    }
