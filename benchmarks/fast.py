"""What static word vectors keep of the default model: agreement with the published scores, and speed.

    python benchmarks/fast.py VCS_EVAL [CLIP_CC] [--only fast] [--keep]

VCS_EVAL holds comparison/, comparison-published/, authors/ and authors-published/, CLIP_CC references.json
and predictions/MODEL.json (docs/guide/experiments.md). Each variant scores all pairs with the segmenter of
the default bundle:

- word vectors as model2vec makes them: principal components, weights by Zipf's law;
- the same with weights that fall more steeply, which count from the first whole word of the vocabulary;
- the bundle `fast`, whose map and weights were trained (models/fast.md);
- the bundle `default`.

Printed are Spearman's rho of VCS (LCT 0) with the published VCS_LCT0 over all pairs of comparison/ ("rho"),
the same for the means of the 26 kinds of rewrites ("kinds"), the AUC of valid against invalid rewrites, rho
over the pairs of authors, and Kendall's tau of the systems' mean margins with CLIP-CC-Bench's ranking.
Pairs a second are those of a second of processor time, from text to score, over pairs of authors that share
no text and have punctuation.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from experiments import RANKING
from pairs import clip_cc, ranks
from records import ANY, keep

from vcs_export.checkpoint.token_vectors import open_token_encoder
from vcs_runtime import Scorer
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.tokenizer import load_tokenizer

FIRST_WORD = 1996  # of the vocabulary, after which words come by frequency
KEPT = 256
TITLES = {
    "as model2vec": "principal components and Zipf weights, as model2vec makes them",
    "steeper weights": "the same, with weights that fall more steeply",
    "fast": "trained map and weights: the bundle `fast`",
    "default": "the embedded default, for comparison",
}


class WordVectors:
    """An embedder for `Scorer.open`: the mean of its tokens' rows of a table."""

    def __init__(self, identity: str, table: np.ndarray, tokenizer) -> None:
        self.identity = identity
        self._table = table.astype(np.float32)
        self._tokenizer = tokenizer

    def embed(self, texts: list[str]) -> np.ndarray:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return np.array([self._table[encoding.ids].sum(axis=0) for encoding in encodings])


def zipf_weights(count: int, coefficient: float, first: int) -> np.ndarray:
    share = 1 / (np.maximum(np.arange(count) - first, 0) + 2)
    return coefficient / (coefficient + share / share.sum())


def principal(vectors: np.ndarray) -> np.ndarray:
    centred = vectors - vectors.mean(axis=0)
    return centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :KEPT]


def comparison(folder: Path) -> list[tuple[str, str, str, bool, float]]:
    """Return reference, rewrite, kind, whether it is valid, and the published VCS_LCT0."""
    rows = []
    for path in sorted((folder / "comparison").glob("*.json"), key=lambda path: int(path.stem)):
        scene = json.loads(path.read_text("utf-8"))
        with (folder / "comparison-published" / f"{path.stem}.csv").open(
            encoding="utf-8", newline=""
        ) as file:
            published = next(row for row in csv.DictReader(file) if row["Metric"] == "VCS_LCT0")
        for category in scene["categories"]:
            for case in category["test_cases"]:
                valid = case["id"][0] in "12" or case["id"] == "3.1"
                rows.append((scene["ground_truth"], case["description"], case["name"], valid,
                             float(published[case["name"]])))  # fmt: skip
    return rows


def authors(folder: Path) -> list[tuple[str, str, float]]:
    """Return the texts of two authors, and the published VCS_LCT0."""
    texts = json.loads((folder / "authors" / "authors.json").read_text("utf-8"))
    with (folder / "authors-published" / "authors.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = [(texts[row["scene"]], *row["Comparison"].split("-"), float(row["VCS_LCT0"])) for row in rows]
    return [(scene[one], scene[other], published) for scene, one, other, published in pairs]


def apart(pairs: list[tuple[str, str, float]]) -> list[tuple[str, str]]:
    """Return pairs of authors none of whose texts is in another pair."""
    seen: set[str] = set()
    chosen = []
    for one, other, _ in pairs:
        if seen.isdisjoint((one, other)):
            seen |= {one, other}
            chosen.append((one, other))
    return chosen


def spearman(left, right) -> float:
    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def kendall(falling: list[float]) -> float:
    signs = [np.sign(a - b) for i, a in enumerate(falling) for b in falling[i + 1 :]]
    return float(np.mean(signs))


def measure(name: str, scorer: Scorer, options: argparse.Namespace) -> dict[str, Any]:
    """Score all pairs, print the figures, and return a row of the manual."""
    rows = comparison(options.vcs_eval)
    written = authors(options.vcs_eval)
    scorer.score(*rows[0][:2])
    unshared = apart(written)
    started = time.process_time()
    scorer.score_many(unshared)
    seconds = time.process_time() - started
    scores = [result.vcs for result in scorer.score_many([row[:2] for row in rows])]
    published = [row[4] for row in rows]
    kinds = list(dict.fromkeys(row[2] for row in rows))
    means = [[np.mean([value for row, value in zip(rows, values, strict=True) if row[2] == kind]) for kind in kinds]
             for values in (scores, published)]  # fmt: skip
    valid = np.array([row[3] for row in rows])
    rank = ranks(scores)
    count = valid.sum()
    auc = (rank[valid].sum() - count * (count + 1) / 2) / (count * (~valid).sum())
    judged = scorer.score_many([pair[:2] for pair in written])
    of_authors = spearman([r.vcs for r in judged], [p[2] for p in written])
    line = (f"{name:42} rho {spearman(scores, published):.3f}  kinds {spearman(*means):.3f}  AUC {auc:.3f}  "
            f"authors {of_authors:.3f}")  # fmt: skip
    if options.clip_cc:
        pairs = list(clip_cc(options.clip_cc))
        results = scorer.score_many([(pair["reference"], pair["generated"]) for pair in pairs])
        margins: dict[str, list[float]] = {model: [] for model in RANKING}
        for pair, result in zip(pairs, results, strict=True):
            if not result.error:
                margins[pair["id"].split("/")[0]].append(result.margin)
        line += f"  systems {kendall([float(np.mean(values)) for values in margins.values()]):.3f}"
    print(f"{line}  {len(unshared) / seconds:.0f} pairs/s", flush=True)
    figures = (spearman(scores, published), spearman(*means), auc, of_authors)
    heads = ("rho, all pairs", "rho, kinds", "AUC, 26 kinds", "rho, authors")
    cells = {head: f"{value:.3f}".removeprefix("0") for head, value in zip(heads, figures, strict=True)}
    side = "ours default:cpu" if name == "default" else f"{name}:cpu"
    return {
        "head": "word vectors", "workload": TITLES[name], "cells": cells, "signatures": {side: judged[0].signature},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vcs_eval", type=Path)
    parser.add_argument("clip_cc", type=Path, nargs="?")
    parser.add_argument("--only", choices=["untrained", "fast", "default"], action="append")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    options = parser.parse_args()
    only = options.only or ["untrained", "fast", "default"]
    rows = []
    if "untrained" in only:
        bundle = open_bundle("default")
        encoder = open_token_encoder(bundle)
        assert bundle.manifest.embedder is not None
        tokenizer = load_tokenizer(bundle.path(bundle.manifest.embedder.tokenizer))
        vectors = principal(encoder.vectors(np.arange(encoder.count)))
        for name, coefficient, first in (("as model2vec", 1e-4, 0), ("steeper weights", 3e-5, FIRST_WORD)):
            table = vectors * zipf_weights(len(vectors), coefficient, first)[:, None]
            with Scorer.open(
                embedder=WordVectors(name.replace(" ", "-"), table, tokenizer), threads=1
            ) as scorer:
                rows.append(measure(name, scorer, options))
    for name in ("fast", "default"):
        if name in only:
            with Scorer.open(name, threads=1) as scorer:
                rows.append(measure(name, scorer, options))
    if options.keep:
        print(keep("fast", rows, place=ANY))


if __name__ == "__main__":
    main()
