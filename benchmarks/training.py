"""Evaluation every 50 steps of a training loop: which share of the time goes into scoring, and does memory stay flat.

    python benchmarks/training.py pairs.jsonl [--steps 200] [--every 50] [--pairs 16] [--step-ms 100] [--rounds 3]

The embedded default on the CPU. A step stands for one on an accelerator: the processor waits for `--step-ms` while data
is prepared for as long as `--busy` of it. Three ways, in turns, each in the same process: no evaluation; evaluation that
the loop waits for; `TextMetric(asynchronous=True)`, whose scores are read at the next evaluation. References are the
same each time, generated texts are new. Both ways must give equal means. Then one long loop, for memory.
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
from sides import resident_mb

from vcs_runtime.training import TextMetric

Texts = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--pairs", dest="count", type=int, default=16, help="of an evaluation")
    parser.add_argument("--step-ms", type=float, default=100)
    parser.add_argument("--busy", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=1, help="that the scorer may use")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=60, help="of the long loop")
    arguments = parser.parse_args()
    lines = arguments.pairs.read_text("utf-8").splitlines()[: arguments.count]
    texts = [(row["reference"], row["generated"]) for row in map(json.loads, lines)]
    metrics = {
        name: TextMetric(device="cpu", asynchronous=name == "asynchronous", threads=arguments.threads)
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
    for name, took in seconds.items():
        share = np.median(1 - plain / np.array(took))
        print(f"{name:14}{np.median(took):10.2f}{share:15.1%}")
    if not _equal(metrics, texts):
        sys.exit("the means of the two differ")
    print("both give the same means to the bit")
    # Vectors that are kept grow up to their bound; what is looked for is what grows besides.
    _memory(TextMetric(device="cpu", threads=arguments.threads, memory_mb=4), texts, arguments.evaluations)


def _loop(arguments: Any, metric: TextMetric | None, texts: Texts, mark: str) -> None:
    """Train, evaluate every so many steps, read the last evaluation's means before the next."""
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
    """New texts, each sentence of which no cache knows, and their references."""
    return (
        [re.sub(r"\. ", f" at {mark}. ", generated) for _, generated in texts],
        [reference for reference, _ in texts],
    )


def _equal(metrics: dict[str, TextMetric], texts: Texts) -> bool:
    found = []
    for metric in metrics.values():
        metric.reset()
        metric.update(*_generated(texts, "the end"))
        found.append(metric.compute())
    return found[0] == found[1]


def _memory(metric: TextMetric, texts: Texts, evaluations: int) -> None:
    """Resident memory after each tenth of the evaluations, released in between: is it flat?"""
    print(f"resident MB over {evaluations} evaluations of 4 pairs, each followed by release():", end="")
    for number in range(evaluations):
        metric.reset()
        metric.update(*_generated(texts[:4], f"evaluation {number}"))
        metric.compute()
        metric.release()
        if number % max(1, evaluations // 10) == 0:
            gc.collect()
            print(f" {resident_mb():.0f}", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
