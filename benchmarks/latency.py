"""Milliseconds of one warm pair, from two strings to a score: this tree against another one, on the CPU.

    python benchmarks/latency.py pairs.jsonl --before CHECKOUT [--pairs 40] [--rounds 3]

The embedded default; real pairs, one `score` each. CHECKOUT is another working tree of this repository (`git worktree
add ../before REVISION`). Both sides run in processes of their own, in turns, pair by pair: each is asked for a pair
while the other waits, so that both see the same machine. Two workloads:

    new       every pair has a reference of its own, nothing is remembered
    cached    the reference was scored before, the generated text is new

Scores of the two must be the same to the bit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np


def child() -> None:
    """Score each pair that comes in as a line; answer with seconds and score."""
    from vcs_runtime import Scorer

    scorers = {"new": Scorer.open("default", "cpu", memory_mb=0), "cached": Scorer.open("default", "cpu")}
    for scorer in scorers.values():
        scorer.score("A man opens a door.", "A woman closes a window.")
    print("ready", flush=True)
    for line in sys.stdin:
        workload, reference, generated = json.loads(line)
        scorer = scorers[workload]
        if workload == "cached":
            scorer.score(reference, reference)
        started = time.perf_counter()
        result = scorer.score(reference, generated)
        print(json.dumps([time.perf_counter() - started, list(result.scores)]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument("--before", type=Path, help="a checkout of the tree to compare with")
    parser.add_argument("--pairs", dest="count", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child()
        return
    here = Path(__file__).parents[1]
    sides = {name: _start(root) for name, root in (("before", arguments.before), ("after", here))}
    rows = [json.loads(line) for line in arguments.pairs.read_text("utf-8").splitlines()[: arguments.count]]
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for workload in ("new", "cached"):
            for row in rows:
                scores = set()
                for name, process in sides.items():
                    answer = _ask(process, [workload, row["reference"], row["generated"]])
                    seconds[workload, name].append(answer[0])
                    scores.add(tuple(answer[1]))
                if len(scores) > 1:
                    sys.exit(f"the two score a pair differently: {scores}")
    for process in sides.values():
        process.communicate()
    print(f"{'':8}{'':8}{'p50 ms':>10}{'p99 ms':>10}")
    for (workload, name), values in seconds.items():
        p50, p99 = np.quantile(values, [0.5, 0.99]) * 1e3
        print(f"{workload:8}{name:8}{p50:10.1f}{p99:10.1f}")
    for workload in ("new", "cached"):
        ratios = np.array(seconds[workload, "before"]) / np.array(seconds[workload, "after"])
        print(f"{workload}: {np.median(ratios):.3f} times as fast, the median of {len(ratios)} pairs of runs")
    print("all scores equal to the bit")


def _start(root: Path) -> subprocess.Popen[str]:
    folders = os.pathsep.join(str(root.resolve() / part) for part in ("", "runtime", "export"))
    process = subprocess.Popen(
        [sys.executable, __file__, "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": folders},
    )  # fmt: skip
    assert process.stdout
    if process.stdout.readline().strip() != "ready":
        sys.exit(f"{root}: does not start")
    return process


def _ask(process: subprocess.Popen[str], question: list[Any]) -> Any:
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


if __name__ == "__main__":
    main()
