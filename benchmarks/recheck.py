"""Whether kept results of experiments still hold although the digits of their signatures are others today.

    python benchmarks/recheck.py CLIP_CC [--systems videollama3] [--keep]

Digits also change with their own definition, and a run of all experiments takes two hours. This script scores the outputs of a
few systems again and compares the means with those that `results/rank` and `results/usefulness` recorded. If they are equal, the
old digits and the present ones name models that compute the same, and `--keep` says so in `results/figures/any`. A test refuses
results whose digits are neither the present ones nor among these. The exit code is 1 if a mean differs by more than 1e-6.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

from experiments import RESULTS
from records import ANY, keep

from vcs_runtime import Scorer

DIGITS = r"\+(boundary-en@\w+).*\|emb:([^|]+)"
EQUAL = 1e-6  # vectors of another processor differ by 1e-7


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="references.json and predictions/MODEL.json")
    parser.add_argument("--systems", nargs="+", default=["videollama3"])
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    texts = {
        row["id"]: row["summary"]
        for row in json.loads((arguments.folder / "references.json").read_text("utf-8"))
    }
    rank, useful = (
        json.loads((RESULTS / name / "results.json").read_text("utf-8")) for name in ("rank", "usefulness")
    )
    ranked = {row["model"]: row for row in rank["tables"]["ranking"]}
    margins = {row["system"]: row["mean margin"] for row in useful["tables"]["systems"]}
    rows, failed = [], False
    with Scorer.open("default", "cpu") as scorer:
        old, new = (
            " and ".join(re.search(DIGITS, text).groups()) for text in (rank["signature"], scorer.signature)
        )
        for system in arguments.systems:
            outputs = json.loads((arguments.folder / f"predictions/{system}.json").read_text("utf-8"))
            ids = sorted(outputs)
            results = scorer.score_many(
                references=[texts[i] for i in ids], predictions=[outputs[i] for i in ids]
            )
            expected = {name: ranked[system][key] for name, key in
                        {"vcs": "VCS_LCT0", "las": "LAS", "nas": "NAS_LCT0", "gas": "Cosine"}.items()}  # fmt: skip
            expected["margin"] = margins[system]
            means = {name: statistics.fmean(getattr(result, name) for result in results) for name in expected}
            apart = {name: abs(means[name] - expected[name]) for name in expected}
            largest = max(apart.values())
            failed |= largest > EQUAL
            print(system, apart)
            rows.append({
                "head": "system", "workload": system, "equal_digits": {"recorded": old, "present": new} if largest <= EQUAL else {},
                "cells": {"outputs": f"{len(ids)}", "digits then": old, "digits now": new, "largest difference of a mean": f"{largest:.0e}"},
                "signatures": {"ours default:cpu": scorer.signature},
            })  # fmt: skip
    if arguments.keep:
        print(keep("recheck", rows, place=ANY))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
