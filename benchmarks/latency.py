"""Milliseconds of one pair on the CPU: from nothing to a first score, and from two strings to a score when all is warm.

    python benchmarks/latency.py start [--rounds 9] [--bundle default] [--keep]
    python benchmarks/latency.py pair PAIRS.jsonl [--pairs 40] [--rounds 3] [--bundle default] [--keep]

`start` is the median of rounds, each in a process of its own: commands as processes, and the parts of a program that scores
one pair. Files are in the page cache, modules are compiled (in a temporary folder), and so are the kernels.

`pair` scores real pairs, one `score` each, in this process: "new" pairs have a reference of their own and nothing is
remembered; for "seen before" the reference was scored before, and the generated text is new. Figures are kept by revision.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from records import keep, parser_of, revision

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs/examples"
PAIR = [str(EXAMPLES / "reference.txt"), str(EXAMPLES / "generated.txt")]
# Imports nothing that the measured code could import.
PROGRAM = """
import sys, time
texts = [open(path, encoding="utf-8").read() for path in sys.argv[2:]]
at = [time.perf_counter()]
from vcs_runtime import Scorer
at.append(time.perf_counter())
scorer = Scorer.open(sys.argv[1], "cpu")
at.append(time.perf_counter())
scorer.score(*texts)
at.append(time.perf_counter())
print(*(1e3 * (b - a) for a, b in zip(at, at[1:])))
"""
PARTS = ("import", "Scorer.open", "first score")


def start(bundle: str, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of commands, and of the parts of a program, each the median of rounds."""
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(*arguments: str) -> str:
            command = [sys.executable, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            return done.stdout

        score = ["score", *PAIR, "--bundle", bundle]
        commands = {
            "--version": ["--version"],
            "--help": ["--help"],
            "score --help": ["score", "--help"],
            "score": score,
        }
        for number in range(rounds + 1):
            for name, words in commands.items():
                started = time.perf_counter()
                run("-m", "vcs_runtime", *words)
                times[f"vcs-runtime {name}"].append(1e3 * (time.perf_counter() - started))
            parts = list(map(float, run("-c", PROGRAM, bundle, *PAIR).split()))
            for part, milliseconds in zip(PARTS, parts, strict=True):
                times[part].append(milliseconds)
            times["import, open and first score"].append(sum(parts))
            if not number:  # the first round fills the caches
                times.clear()
    for name, values in times.items():
        print(f"{name:32} {statistics.median(values):6.0f} ms ({min(values):.0f} to {max(values):.0f})")
    return [
        {"workload": name, "sides": {"now": {"ms": statistics.median(values)}}}
        for name, values in times.items()
    ]


def pair(path: Path, bundle: str, count: int, rounds: int) -> list[dict[str, Any]]:
    """p50 and p99 of a warm pair with a new reference, and with one that was scored before."""
    import numpy as np

    from vcs_runtime import Scorer

    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()[:count]]
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        with Scorer.open(bundle, "cpu", cache_mb=0) as new, Scorer.open(bundle, "cpu") as cached:
            signature = new.signature
            for workload, scorer in (("new", new), ("seen before", cached)):
                scorer.score("A man opens a door.", "A woman closes a window.")  # warms up
                for row in rows:
                    if workload == "seen before":
                        scorer.score(row["reference"], row["reference"])
                    started = time.perf_counter()
                    scorer.score(row["reference"], row["generated"])
                    seconds[workload].append(time.perf_counter() - started)
    table = []
    for workload, values in seconds.items():
        figures = {f"p{p}_ms": round(1e3 * float(np.quantile(values, p / 100)), 1) for p in (50, 99)}
        print(workload, figures)
        table.append({
            "workload": workload, "sides": {revision(): figures}, "pairs": len(rows), "rounds": rounds,
            "signatures": {"ours default:cpu" if bundle == "default" else "ours": signature},
        })  # fmt: skip
    return table


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["start", "pair"])
    parser.add_argument("file", type=Path, nargs="?", help="file of pairs")
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    if arguments.what == "start":
        name, rows = "start", start(arguments.bundle, arguments.rounds or 9)
    elif arguments.file is None:
        parser.error("pair needs a file of pairs")
    else:
        name, rows = "latency", pair(arguments.file, arguments.bundle, arguments.pairs, arguments.rounds or 3)
    if arguments.keep:
        print(keep(name, rows))


if __name__ == "__main__":
    main()
