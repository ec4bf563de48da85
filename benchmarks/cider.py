"""CIDEr beside pycocoevalcap: words, scores, and its agreement with people on VATEX-EVAL.

    .venv-parity/bin/python benchmarks/cider.py DATA [--coco EXAMPLE] [--keep]

Needs Java. DATA holds vcs-eval/, vatex-eval/ and clip-cc/ as docs/guide/experiments.md describes them. EXAMPLE is
the folder `example` of pycocoevalcap's repository: its captions_val2014.json and its results, of which pycocoevalcap
says that their CIDEr is .600. Every text of DATA and of this repository's manual is cut into words by both sides,
and both sides score the captions. Nothing that is printed holds a text.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, keep

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Problems, read_cases, read_descriptions
from vcs_experiments.metrics import cider
from vcs_experiments.metrics.corpus import Corpus
from vcs_experiments.metrics.ptb_tokenizer import ptb_words
from vcs_experiments.vatex import Video, read_vatex

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pycocoevalcap.cider.cider import Cider as Original
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

Words = dict[Any, list[str]]
# tau-b and rho of CIDEr in the papers' Table 2, by the number of references.
TABLE_2 = {1: (".173", ".226"), 9: (".278", ".361")}


def java_words(texts: Mapping[Any, Sequence[str]]) -> Words:
    """pycocoevalcap's words of each item's texts, joined by spaces."""
    return PTBTokenizer().tokenize({key: [{"caption": text} for text in own] for key, own in texts.items()})  # type: ignore[no-any-return]


def compare_words(name: str, texts: Iterable[str]) -> None:
    """Count the texts whose words differ."""
    lines = [" ".join(text.split()) for text in texts if text.strip()]
    wanted = [words for [words] in java_words({i: [line] for i, line in enumerate(lines)}).values()]
    ours = [" ".join(ptb_words(line)) for line in lines]
    differ = sum(a != b for a, b in zip(wanted, ours, strict=True))
    print(f"{name:28} {len(lines):6} texts, {differ:3} with other words")


def manual() -> list[str]:
    """The manual's paragraphs of plain sentences, which had no part in finding the rules of the tokenizer."""
    root = Path(__file__).parents[1]
    pages = [*sorted((root / "docs").rglob("*.md")), root / "README.md", root / "CHANGELOG.md"]
    parts = [part for page in pages for part in page.read_text("utf-8").split("\n\n")]
    return [part for part in parts if not re.search(r"[`|<>#*\[\]_=]", part)]


def scores(references: Mapping[Any, Sequence[str]], generated: Mapping[Any, str]) -> tuple[Any, Any]:
    """The scores of one text per item: pycocoevalcap's and ours."""
    _, wanted = Original().compute_score(
        java_words(references), java_words({key: [text] for key, text in generated.items()})
    )
    own = cider.Cider(Corpus.of(references.values()))
    return wanted, np.array([own.score(references[key], text) for key, text in generated.items()])


def vatex(videos: Sequence[Video]) -> list[dict[str, Any]]:
    """Score all candidates with 1 and 9 references, and correlate them with the ratings."""
    rows = []
    for count in (1, 9):
        references = {video.id: video.references[:count] for video in videos}
        found: dict[tuple[str, int], tuple[float, float]] = {}
        for place in range(max(len(video.candidates) for video in videos)):
            chosen = {v.id: v.candidates[place] for v in videos if place < len(v.candidates)}
            both = scores({key: references[key] for key in chosen}, chosen)
            found |= {(key, place): pair for key, *pair in zip(chosen, *both, strict=True)}  # type: ignore[misc]
        keys = [(v.id, i) for v in videos for i in range(len(v.candidates))]
        ratings = np.array([rating for v in videos for rating in v.ratings])
        wanted, ours = np.array([found[key] for key in keys]).T
        agreed = [statistics.rated(measure, ours, ratings, [key for key, _ in keys], resamples=2, seed=1).mean
                  for measure in (statistics.kendall, statistics.spearman)]  # fmt: skip
        print(f"VATEX-EVAL, {count} references: {len(keys)} scores, largest difference "
              f"{np.abs(wanted - ours).max():.1e}, mean {ours.mean():.4f}, "
              f"tau-b {agreed[0]:.3f}, rho {agreed[1]:.3f}")  # fmt: skip
        tau, rho = (f"{value:.3f}".removeprefix("0") for value in agreed)
        rows.append({
            "head": "captions of VATEX-EVAL", "workload": f"{count} reference{'s'[: count > 1]}",
            "cells": {
                "scores": f"{len(keys):,}",
                "largest difference to pycocoevalcap": f"{np.abs(wanted - ours).max():.1e}",
                "tau-b": tau, "the papers' Table 2": TABLE_2[count][0], "rho": rho, "Table 2": TABLE_2[count][1],
            },
        })  # fmt: skip
    return rows


def coco(folder: Path) -> None:
    """Score pycocoevalcap's own example."""
    annotations = json.loads((folder / "captions_val2014.json").read_text("utf-8"))["annotations"]
    results = json.loads((folder / "captions_val2014_fakecap_results.json").read_text("utf-8"))
    generated = {row["image_id"]: row["caption"] for row in results}
    references: dict[Any, list[str]] = {key: [] for key in generated}
    for row in annotations:
        if row["image_id"] in references:
            references[row["image_id"]].append(row["caption"])
    wanted, ours = scores(references, generated)
    print(f"pycocoevalcap's example: {len(ours)} captions, CIDEr {wanted.mean():.4f} there, {ours.mean():.4f} here, "
          f"largest difference {np.abs(wanted - ours).max():.1e}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--coco", type=Path)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    options = parser.parse_args()
    silent = Problems()
    videos = read_vatex(options.data / "vatex-eval/vatex-eval-300.jsonl", silent)
    cases = read_cases(options.data / "vcs-eval", silent)
    clip = options.data / "clip-cc"
    files = [clip / "references.json", *sorted((clip / "predictions").iterdir())]
    described = [text for path in files for text in read_descriptions(path, silent).values()]
    with contextlib.redirect_stderr(io.StringIO()):
        compare_words("VATEX-EVAL", (text for v in videos for text in (*v.references, *v.candidates)))
        compare_words(
            "the authors' descriptions", {text for c in cases for text in (c.reference, c.generated)}
        )
        compare_words("CLIP-CC", (str(text) for text in described))
        compare_words("this manual", manual())
        rows = vatex(videos)
        if options.coco:
            coco(options.coco)
    if options.keep:
        print(keep("cider", rows, place=ANY))


if __name__ == "__main__":
    main()
