"""Evaluation every 50 steps of a training loop: the share of time that scoring takes, and whether memory stays flat.

    python benchmarks/training.py pairs.jsonl [--steps 200] [--every 50] [--pairs 16] [--step-ms 100] [--rounds 3]

The embedded default scores on the CPU. A step simulates one on an accelerator: it lasts `--step-ms`, and the processor
prepares data for the fraction `--busy` of it. Three loops run in turns in the same process: without an evaluation, with
an evaluation that the loop waits for, and with `TextMetric(asynchronous=True)`, whose scores are read at the next
evaluation. The references are always the same, the generated texts are new. Both evaluations must give equal means.
A last, long loop shows the memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from records import keep
from sides import resident_mb

from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.training import TextMetric

Texts = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--pairs", dest="count", type=int, default=16, help="pairs of an evaluation")
    parser.add_argument("--step-ms", type=float, default=100)
    parser.add_argument("--busy", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=1, help="threads of the scorer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=60, help="evaluations of the long loop")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    lines = arguments.pairs.read_text("utf-8").splitlines()[: arguments.count]
    texts = [(row["reference"], row["generated"]) for row in map(json.loads, lines)]
    metrics = {
        name: TextMetric(
            ScorerConfig(device="cpu", threads=arguments.threads), asynchronous=name == "asynchronous"
        )
        for name in ("waiting", "asynchronous")
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    for metric in metrics.values():
        metric.scorer.fill([reference for reference, _ in texts])
    for turn in range(arguments.rounds):
        for name, metric in {"none": None, **metrics}.items():
            started = time.perf_counter()
            _loop(arguments, metric, texts, f"{turn} {name[0]}")
            seconds[name].append(time.perf_counter() - started)
    plain = np.array(seconds["none"])
    print(f"{'evaluation':14}{'s a loop':>10}{'of it scoring':>15}")
    titles = {"waiting": "the loop waits for it", "asynchronous": "`TextMetric(asynchronous=True)`"}
    rows = []
    for name, took in seconds.items():
        share = np.median(1 - plain / np.array(took))
        print(f"{name:14}{np.median(took):10.2f}{share:15.1%}")
        if name in titles:
            cells = {
                f"scoring's share of the loop (median of {arguments.rounds} rounds)": f"{100 * share:.0f} %"
            }
            rows.append({"head": "evaluation", "workload": titles[name], "cells": cells})
    if not _equal(metrics, texts):
        sys.exit("the means of the two differ")
    print("both give the same means to the bit")
    # The vectors in memory grow up to their limit, so the limit is small: nothing else should grow.
    config = ScorerConfig(device="cpu", threads=arguments.threads, cache_mb=4)
    memory = _memory(TextMetric(config), texts, arguments.evaluations)
    if arguments.keep:
        with Scorer.open("default", "cpu", threads=arguments.threads) as scorer:
            signatures = {"ours default:cpu": scorer.signature}
        for kind, table in (("training", rows), ("training_memory", memory)):
            print(keep(kind, [row | {"signatures": signatures} for row in table]))


def _loop(arguments: Any, metric: TextMetric | None, texts: Texts, mark: str) -> None:
    """Train and evaluate; the means of an evaluation are read before the next one."""
    for step in range(1, arguments.steps + 1):
        _step(arguments.step_ms / 1e3, arguments.busy)
        if metric and step % arguments.every == 0:
            metric.compute()
            metric.reset()
            metric.update(*_generated(texts, f"{mark} {step}"))
    if metric:
        metric.compute()


def _step(seconds: float, busy: float) -> None:
    started = time.perf_counter()
    while time.perf_counter() - started < seconds * busy:
        pass
    time.sleep(max(0.0, seconds - (time.perf_counter() - started)))


def _generated(texts: Texts, mark: str) -> tuple[list[str], list[str]]:
    """New generated texts, of which no cache knows a sentence, and their references."""
    return (
        [re.sub(r"\. ", f" at {mark}. ", generated) for _, generated in texts],
        [reference for reference, _ in texts],
    )


def _equal(metrics: dict[str, TextMetric], texts: Texts) -> bool:
    means = []
    for metric in metrics.values():
        metric.reset()
        metric.update(*_generated(texts, "the end"))
        means.append(metric.compute())
    return means[0] == means[1]


def _memory(metric: TextMetric, texts: Texts, evaluations: int) -> list[dict[str, Any]]:
    """Print and return the resident memory ten times over many evaluations, each followed by a release."""
    print(f"resident MB over {evaluations} evaluations of 4 pairs, each followed by release():", end="")
    rows = []
    for number in range(evaluations):
        metric.reset()
        metric.update(*_generated(texts[:4], f"evaluation {number}"))
        metric.compute()
        metric.release()
        if number % max(1, evaluations // 10) == 0:
            gc.collect()
            cells = {"resident memory": f"{resident_mb():.0f} MB"}
            rows.append({"head": "evaluation", "workload": f"number {number + 1}", "cells": cells})
            print(f" {cells['resident memory']}", end="", flush=True)
    print()
    return rows


if __name__ == "__main__":
    main()
