"""Turn the folders of the authors' experiments into pairs files for `vcs-runtime score`.

    python benchmarks/pairs.py clip-cc FOLDER -o pairs.jsonl
    python benchmarks/pairs.py scenes FOLDER -o pairs.jsonl
    python benchmarks/pairs.py calibrated DATA [BUNDLE] [-o FOLDER] [--device D] [--keep]

`clip-cc` (references.json, predictions/MODEL.json) writes ids "MODEL/VIDEO". `scenes` (comparison/
with rewrites of scenes, and authors/authors.json) writes ids "SCENE/REWRITE" and "SCENE/A1-A2".

`calibrated` measures how a bundle's calibration changes its agreement with the published VCS, and
the scores of texts about another film. DATA contains vcs-eval/ and vcs-eval-159/. Nine scenes of
each set are used, every fourth by number. Every second scene of vcs-eval-159 is blind: nothing was
chosen with it. FOLDER stores the vectors of an interrupted run.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, keep, parser_of

from vcs_experiments.statistics import spearman
from vcs_runtime import Scorer


def clip_cc(folder: Path) -> Iterator[dict[str, Any]]:
    rows = json.loads((folder / "references.json").read_text("utf-8"))
    references = {row["id"]: row["summary"] for row in rows}
    for path in sorted((folder / "predictions").glob("*.json")):
        predictions = json.loads(path.read_text("utf-8"))
        for video in sorted(references):
            if video in predictions:
                yield _pair(f"{path.stem}/{video}", references[video], predictions[video])


def rewrites(folder: Path) -> Iterator[dict[str, Any]]:
    by_number = sorted((folder / "comparison").glob("*.json"), key=lambda path: int(path.stem))
    for path in by_number:
        scene = json.loads(path.read_text("utf-8"))
        for category in scene["categories"]:
            for case in category["test_cases"]:
                yield _pair(
                    f"{path.stem}/{case['name']}", scene["ground_truth"], case["description"]
                )


def scenes(folder: Path) -> Iterator[dict[str, Any]]:
    yield from rewrites(folder)
    texts = json.loads((folder / "authors/authors.json").read_text("utf-8"))
    for name, by_author in texts.items():
        for one, other in permutations(sorted(by_author), 2):
            yield _pair(f"{name}/{one}-{other}", by_author[one], by_author[other])


def _pair(name: str, reference: str, generated: str) -> dict[str, Any]:
    return {"id": name, "reference": reference, "generated": generated}


def scenes_of(data: Path, name: str) -> list[list[dict[str, Any]]]:
    """Return the pairs of nine scenes of a set, by scene, with their published VCS."""
    folder = data / ("vcs-eval" if name == "seen" else "vcs-eval-159")
    scenes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for pair in rewrites(folder):
        scenes[pair["id"].split("/")[0]].append(pair)
    numbers = list(scenes)
    if name != "seen":
        numbers = numbers[name == "blind" :: 2]
    chosen = [scenes[number] for number in numbers[::4][:9]]
    for pairs in chosen:
        number = pairs[0]["id"].split("/")[0]
        table = folder / "comparison-published" / f"{number}.csv"
        with table.open(encoding="utf-8", newline="") as file:
            [row] = [row for row in csv.DictReader(file) if row["Metric"] == "VCS_LCT0"]
        for pair in pairs:
            pair["published"] = float(row[pair["id"].split("/", 1)[1]])
    return chosen


def agreement(ours: np.ndarray, published: np.ndarray) -> tuple[float, float, float]:
    """Return rho of all pairs, the mean rho within kinds, and the mean absolute error.

    Both arrays are (scenes, kinds).
    """
    within = []
    for kind in range(ours.shape[1]):
        column, theirs = ours[:, kind], published[:, kind]
        if np.ptp(column) and np.ptp(theirs):
            within.append(spearman(column, theirs))
    rho = spearman(ours.ravel(), published.ravel())
    return rho, float(np.mean(within)), float(np.abs(ours - published).mean())


def calibrated(data: Path, bundle: str, device: str, folder: Path, kept: bool) -> None:
    rows = []
    for is_calibrated in (False, True):
        with Scorer.open(
            bundle, device, cache=folder, calibrated=is_calibrated, segmenter="default"
        ) as scorer:
            sets = {name: scenes_of(data, name) for name in ("tuned", "seen", "blind")}
            sets = {"tuning": sets["tuned"] + sets["seen"], "blind": sets["blind"]}
            for name, scenes in sets.items():
                pairs = [(p["reference"], p["generated"]) for pairs in scenes for p in pairs]
                texts = [pairs[0]["reference"] for pairs in scenes]
                films = [(a, b) for a, b in zip(texts, texts[1:] + texts[:1], strict=True)]
                results = scorer.score_many(pairs + films)
                ours = np.array([result.vcs for result in results])
                film, ours = ours[len(pairs) :], ours[: len(pairs)].reshape(len(scenes), -1)
                published = np.array([[p["published"] for p in pairs] for pairs in scenes])
                measured = agreement(ours, published)
                generator = np.random.default_rng(0)
                draws = generator.integers(len(scenes), size=(500, len(scenes)))
                spread = np.quantile(
                    [agreement(ours[draw], published[draw]) for draw in draws],
                    (0.025, 0.975),
                    axis=0,
                )
                cells = {
                    "another film, mean and most": f"{film.mean():.3f}, {film.max():.3f}",
                    "zeros, published": f"{(ours == 0).mean():.3f}, {(published == 0).mean():.3f}",
                }
                for place, head in enumerate(("rho", "rho within kinds", "MAE")):
                    low, high = spread[:, place]
                    cells[head] = f"{measured[place]:.3f} [{low:.3f}, {high:.3f}]"
                cells["pairs"] = str(len(pairs))
                which = "calibrated" if is_calibrated else "untouched"
                title = f"{scorer.embedder.name}, {which}, {name}"
                print(title, cells, flush=True)
                rows.append(
                    {
                        "head": "model, scenes",
                        "workload": title,
                        "cells": cells,
                        "signatures": {f"{scorer.embedder.name}:{which}": scorer.signature},
                    }
                )
    if kept:
        print(keep("calibration", rows, place=ANY))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["clip-cc", "scenes", "calibrated"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("bundle", nargs="?", default="default")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    if arguments.what == "calibrated":
        with tempfile.TemporaryDirectory() as temporary:
            folder = arguments.output or Path(temporary)
            calibrated(arguments.folder, arguments.bundle, arguments.device, folder, arguments.keep)
        return
    rows = {"clip-cc": clip_cc, "scenes": scenes}[arguments.what](arguments.folder)
    with arguments.output.open("w", encoding="utf-8") if arguments.output else sys.stdout as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
