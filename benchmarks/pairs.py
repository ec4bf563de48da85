"""Turn the folders of the authors' experiments into pairs files that `vcs-runtime score` reads.

    python benchmarks/pairs.py clip-cc FOLDER -o pairs.jsonl
    python benchmarks/pairs.py comparison FOLDER -o pairs.jsonl
    python benchmarks/pairs.py correlate scores.jsonl PUBLISHED_FOLDER [--keep]
    python benchmarks/pairs.py fp16 pairs.jsonl [BUNDLE] [-o FOLDER]
    python benchmarks/pairs.py calibrated DATA [BUNDLE] [-o FOLDER] [--device D] [--keep]

`clip-cc` (references.json, predictions/MODEL.json): ids "MODEL/VIDEO". `comparison` (SCENE.json
with `ground_truth` and rewrites): ids "SCENE/REWRITE". `correlate` compares scored rewrites with
the authors' SCENE.csv (column VCS_LCT0). `fp16`: what a bundle's graph for CUDA changes beside its
graph in float32, both by ONNX Runtime's kernels for CPUs. FOLDER keeps the vectors of a run that is
stopped. `calibrated`: what the calibration of a bundle does to its agreement with the published VCS,
and to texts about another film. DATA holds vcs-eval/ and vcs-eval-159/. Nine scenes of each set are
taken, every fourth by number. Of vcs-eval-159 every second scene is blind: nothing was chosen on it.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, keep, parser_of

from vcs_experiments.statistics import spearman
from vcs_runtime import Embedder, Scorer
from vcs_runtime.inference.batching import TOKEN_BUDGET
from vcs_runtime.inference.vector_cache import VectorCache


def clip_cc(folder: Path) -> Iterator[dict[str, Any]]:
    rows = json.loads((folder / "references.json").read_text("utf-8"))
    references = {row["id"]: row["summary"] for row in rows}
    for path in sorted((folder / "predictions").glob("*.json")):
        predictions = json.loads(path.read_text("utf-8"))
        for video in sorted(references):
            if video in predictions:
                yield _pair(f"{path.stem}/{video}", references[video], predictions[video])


def comparison(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.json"), key=lambda path: int(path.stem)):
        scene = json.loads(path.read_text("utf-8"))
        for category in scene["categories"]:
            for case in category["test_cases"]:
                yield _pair(
                    f"{path.stem}/{case['name']}", scene["ground_truth"], case["description"]
                )


def _pair(name: str, reference: str, generated: str) -> dict[str, Any]:
    return {"id": name, "reference": reference, "generated": generated}


def correlate(scores: Path, folder: Path, kept: bool) -> None:
    ours, theirs = [], []
    by_rewrite: dict[str, list[tuple[float, float]]] = defaultdict(list)
    published: dict[str, dict[str, str]] = {}
    for line in scores.read_text("utf-8").splitlines():
        record = json.loads(line)
        if "error" in record:
            continue
        scene, rewrite = record["id"].split("/", 1)
        if scene not in published:
            with (folder / f"{scene}.csv").open(encoding="utf-8", newline="") as file:
                published[scene] = next(
                    row for row in csv.DictReader(file) if row["Metric"] == "VCS_LCT0"
                )
        ours.append(record["vcs"])
        theirs.append(float(published[scene][rewrite]))
        by_rewrite[rewrite].append((ours[-1], theirs[-1]))
    rho = spearman(np.array(ours), np.array(theirs))
    print(f"{len(ours)} pairs, Spearman's rho with the published VCS_LCT0: {rho:.4f}\n")
    print(f"{'rewrite':45} {'n':>3} {'ours':>6} {'published':>9}")
    rows = [
        (
            "Spearman's rho of all pairs",
            {"embedded default": f"{rho:.3f}", "pairs": f"{len(ours):,}"},
        )
    ]
    for rewrite, values in by_rewrite.items():
        mine, published_mean = (f"{mean:.3f}" for mean in np.mean(values, axis=0))
        print(f"{rewrite:45} {len(values):3} {mine:>6} {published_mean:>9}")
        cells = {"embedded default": mine, "published": published_mean, "pairs": f"{len(values)}"}
        rows.append((f"mean: {rewrite}", cells))
    if kept:
        signatures = {"ours default:cpu": record["signature"]}
        figures = [
            {"head": "figure", "workload": name, "cells": cells, "signatures": signatures}
            for name, cells in rows
        ]
        print(keep("correlation", figures, place=ANY))


def scenes_of(data: Path, name: str) -> list[list[dict[str, Any]]]:
    """Return the pairs of nine scenes of a set, by scene, with their published VCS."""
    folder = data / ("vcs-eval" if name == "seen" else "vcs-eval-159")
    scenes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for pair in comparison(folder / "comparison"):
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


class Kept:
    """A bundle's embedder as one of the caller, which keeps its vectors, in a folder too."""

    identity = "kept"

    def __init__(self, embedder: Any, folder: Path) -> None:
        self.embedder = embedder
        self.cache = VectorCache(folder, embedder.cache_identity, embedder.dimension)
        self.vectors: dict[str, np.ndarray] = {}

    def embed(self, texts: list[str]) -> list[np.ndarray]:
        self.vectors |= self.cache.load(texts)
        new = [text for text in texts if text not in self.vectors]
        for part in (new[start : start + 256] for start in range(0, len(new), 256)):
            vectors = dict(zip(part, self.embedder.embed(part), strict=True))
            self.cache.store(vectors)
            self.vectors |= vectors
        return [self.vectors[text] for text in texts]


def fp16(path: Path, bundle: str, folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))
    import pytest

    from support import stand_in

    patch = pytest.MonkeyPatch()
    stand_in.put_in(patch)
    patch.setitem(TOKEN_BUDGET, "ort-cuda", 512)
    pairs = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    vectors, scores = [], []
    for device in ("cpu", "cuda:0"):
        with Embedder.open(bundle, device) as embedder:
            known = Kept(embedder, folder)
            with Scorer.open(bundle, device="cpu", embedder=known) as scorer:
                scores.append(
                    list(scorer.score_many((p["reference"], p["generated"]) for p in pairs))
                )
            vectors.append(
                np.array([known.vectors[text] for text in sorted(known.vectors)], np.float64)
            )
            print(device, *embedder.signature_fields, flush=True)
    lost = 1 - np.einsum("td,td->t", *vectors)
    print(f"1 - cosine of {len(lost):,} texts: mean {lost.mean():.1e}, largest {lost.max():.1e}")
    for name in ("vcs", "margin"):
        old, new = (np.array([getattr(result, name) for result in each]) for each in scores)
        change, flips = np.abs(new - old), np.sum((old > 0) != (new > 0))
        print(
            f"change of {name}: mean {change.mean():.1e}, largest {change.max():.1e}, {flips} of"
            f" {len(old):,} to or from 0"
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "what", choices=["clip-cc", "comparison", "correlate", "fp16", "calibrated"]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("published", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    if arguments.what == "correlate":
        correlate(arguments.folder, arguments.published, arguments.keep)
        return
    if arguments.what in ("fp16", "calibrated"):
        with tempfile.TemporaryDirectory() as temporary:
            bundle = str(arguments.published or "default")
            folder = arguments.output or Path(temporary)
            if arguments.what == "fp16":
                fp16(arguments.folder, bundle, folder)
            else:
                calibrated(arguments.folder, bundle, arguments.device, folder, arguments.keep)
        return
    rows = {"clip-cc": clip_cc, "comparison": comparison}[arguments.what](arguments.folder)
    with arguments.output.open("w", encoding="utf-8") if arguments.output else sys.stdout as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
