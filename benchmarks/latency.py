"""Milliseconds of one warm pair, from two strings to a score: this revision against another one, on the CPU.

    python benchmarks/latency.py pairs.jsonl --before REVISION [--bundle default] [--pairs 40] [--rounds 3] [--keep]

Real pairs, one `score` each. REVISION is a git revision of this repository, or a folder with one. Both sides run in
processes of their own, in turns, pair by pair: each is asked for a pair while the other waits, so that both see the
same machine. Two workloads:

    new       every pair has a reference of its own, nothing is remembered
    cached    the reference was scored before, the generated text is new

How far the scores of the two are apart is printed last. With --keep the figures are kept by revision.
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
from records import keep, revision
from sides import tree

WORKLOADS = {"new": "new", "cached": "seen before"}


def child(bundle: str) -> None:
    """Score each pair that comes in as a line; answer with seconds and score."""
    from vcs_runtime import Scorer

    scorers = {"new": Scorer.open(bundle, "cpu", cache_mb=0), "cached": Scorer.open(bundle, "cpu")}
    for scorer in scorers.values():
        scorer.score("A man opens a door.", "A woman closes a window.")
    print(scorers["new"].signature, flush=True)
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
    parser.add_argument("--before", help="the revision to compare with")
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--pairs", dest="count", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.bundle)
        return
    if not (arguments.pairs and arguments.before):
        parser.error("a file of pairs and --before are needed")
    rows = [json.loads(line) for line in arguments.pairs.read_text("utf-8").splitlines()[: arguments.count]]
    now = revision()  # may change while this runs
    with tree(arguments.before) as (before, folder):
        sides = {
            before: Side(folder, arguments.bundle),
            now: Side(Path(__file__).parents[1], arguments.bundle),
        }
        seconds, apart = run(sides, rows, arguments.rounds)
    table = [
        {
            "workload": WORKLOADS[workload],
            "sides": {
                side: {f"p{p}_ms": round(1e3 * float(np.quantile(values, p / 100)), 1) for p in (50, 99)}
                for side, values in found.items()
            },
            "ratio": round(float(np.median(np.divide(*found.values()))), 3),
            "pairs": len(rows),
            "rounds": arguments.rounds,
            "signatures": {"ours default:cpu" if arguments.bundle == "default" else "ours": sides[now].signature},
        }
        for workload, found in seconds.items()
    ]  # fmt: skip
    for row in table:
        print(row["workload"], row["sides"], f"{row['ratio']:.3f} times as fast, the median of pairs of runs")
    print(f"scores differ by {apart:.1g} at most" if apart else "all scores equal to the bit")
    if arguments.keep:
        print(keep("latency", table))


def run(
    sides: dict[str, Side], rows: list[dict[str, Any]], rounds: int
) -> tuple[dict[str, dict[str, list[float]]], float]:
    """Ask both sides in turns; return seconds by workload and side, and how far scores are apart at most."""
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    apart = 0.0
    for number in range(rounds):
        for workload in WORKLOADS:
            for row in rows:
                scores = {}
                # Who comes first changes from round to round.
                for name, side in list(sides.items())[:: -1 if number % 2 else 1]:
                    taken, scores[name] = side.ask([workload, row["reference"], row["generated"]])
                    seconds[workload][name].append(taken)
                first, second = map(np.array, scores.values())
                # A later revision may have more scores.
                shared = min(len(first), len(second))
                apart = max(apart, float(np.abs(first[:shared] - second[:shared]).max()))
    return {workload: {name: found[name] for name in sides} for workload, found in seconds.items()}, apart


class Side:
    """A process with the code of one tree."""

    def __init__(self, root: Path, bundle: str) -> None:
        folders = os.pathsep.join(
            [*(str(root.resolve() / part) for part in ("", "runtime", "export")), str(Path(__file__).parent)]
        )
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child", "--bundle", bundle], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": folders},
        )  # fmt: skip
        self.signature = self._line()

    def ask(self, question: list[Any]) -> Any:
        """Return what the process answers."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline().strip()
        if not line:
            sys.exit("the other tree does not start, or cannot open the bundle")
        return line


if __name__ == "__main__":
    main()
