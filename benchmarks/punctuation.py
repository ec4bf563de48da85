"""What punctuation is worth: rewrites as they are written, and the same ones without punctuation.

    python benchmarks/punctuation.py DATA [--pairs 30] [--bundle default] [--keep]

DATA is the authors' data folder, as for `vcs-runtime experiment corruption`. `--pairs` valid rewrites are taken evenly
from it. Each is scored twice with each segmenter: as written, and without punctuation.

    auto        rules split the pairs as they are written, the learned segmenter the others
    consistent  the learned segmenter splits all pairs, as of one job

A line a segmenter and score: the two means, their difference with its 95 % bootstrap interval, and the p-values of a
paired bootstrap and of a permutation test. GAS is the cosine of the whole texts, which no segmenter changes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, keep

from vcs_experiments.datasets.texts import Problems, read_cases
from vcs_runtime import Scorer
from vcs_runtime.comparing.statistics import paired_difference
from vcs_runtime.text.cleaning import strip_punctuation

SCORES = ("vcs", "gas", "las", "nas", "margin")


def main() -> None:
    """Score, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    cases = [c for c in read_cases(arguments.data, Problems()) if c.valid and c.series is None]
    count = min(arguments.pairs, len(cases))
    chosen = [cases[i * len(cases) // count] for i in range(count)]
    written = [(case.reference, case.generated) for case in chosen]
    stripped = [(case.reference, strip_punctuation(case.generated)) for case in chosen]
    print(f"{count} of {len(cases)} valid rewrites")
    print("segmenter   score   written  stripped  difference [95 %]           p bootstrap  p permutation")
    rows: dict[str, dict[str, Any]] = {
        score: {"head": "score", "workload": score, "cells": {}, "signatures": {}} for score in SCORES
    }
    for segmenter in ("auto", "consistent"):
        with Scorer.open(arguments.bundle, "cpu", segmenter=segmenter) as scorer:
            results = scorer.score_many([*written, *stripped])  # one job
        for score in SCORES:
            values = np.array([getattr(result, score) for result in results])
            before, after = values[:count], values[count:]
            d = paired_difference(after, before)
            rows[score]["cells"] |= {
                f"`{segmenter}`: written": f"{before.mean():.3f}", f"`{segmenter}`: without": f"{after.mean():.3f}",
                f"`{segmenter}`: difference (95 %)": f"{d.mean:+.4f} ({d.low:+.4f}, {d.high:+.4f})",
            }  # fmt: skip
            print(
                f"{segmenter:<10}  {score:<6}  {before.mean():7.4f}  {after.mean():8.4f}  {d.mean:+10.4f} "
                f"[{d.low:+.4f}, {d.high:+.4f}]  {d.p_bootstrap:11.4f}  {d.p_permutation:13.4f}"
            )
        print(results[-1].signature)
        for row in rows.values():
            row["signatures"][f"ours {arguments.bundle}:{segmenter}"] = results[-1].signature
    if arguments.keep:
        print(keep("punctuation", list(rows.values()), place=ANY))


if __name__ == "__main__":
    main()
