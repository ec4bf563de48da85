"""The cost of `--runner ray` compared with one process: its start, and every 1,000 pairs.

    python benchmarks/ray_engine.py pairs.jsonl [--distinct 60] [--pairs 1000] [--rounds 3] [--keep]

Both sides run the command `vcs-runtime score` with one thread or one actor, in turns, on the same file. It has `--pairs`
lines made of `--distinct` pairs of `pairs.jsonl`, whose vectors are already in a `--cache` folder. So the model has
nothing to do, and the remaining work (splitting, looking up, aligning, writing) shows the difference. `seconds` is the
job's own time from the first pair on. `start` is the rest of the command: Python, the bundle, and the cluster of Ray.
The outputs must be the same bytes. (A file called ray.py would hide Ray from all scripts in this folder.)

    python benchmarks/ray_engine.py equal ONE.jsonl OTHER.jsonl

compares two score files: the ids and their order, and every number to the last bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from records import keep
from rich.console import Console
from rich.table import Table

from vcs_runtime.scoring import score_table


def run(source: Path, output: Path, cache: Path, *engine: str) -> tuple[float, float]:
    """Run the command: seconds before the first pair, and from the first pair on."""
    command = [sys.executable, "-m", "vcs_runtime", "score", source, "-o", output, "--overwrite", "--json"]
    command += ["--device", "cpu", "--threads", "1", "--cache", cache, "--duplicates", "suffix", *engine]
    begun = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    whole = time.perf_counter() - begun
    if not done.stdout:
        sys.exit(done.stderr)
    seconds = json.loads(done.stdout)["seconds"]
    return whole - seconds, seconds


def overhead(arguments: argparse.Namespace) -> None:
    sides = {"one process": (), "Ray, one actor": ("--runner", "ray", "--actors", "1")}
    times: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source, few = folder / "pairs.jsonl", folder / "few.jsonl"
        lines = arguments.pairs_file.read_text("utf-8").splitlines(keepends=True)[: arguments.distinct]
        few.write_text("".join(lines), "utf-8")
        source.write_text("".join(islice(cycle(lines), arguments.pairs)), "utf-8")
        run(few, folder / "few.scores.jsonl", folder / "cache")
        for _ in range(arguments.rounds):
            outputs = set()
            for side, engine in sides.items():
                times[side].append(run(source, folder / "scores.jsonl", folder / "cache", *engine))
                outputs.add((folder / "scores.jsonl").read_bytes())
            if len(outputs) > 1:
                sys.exit("the sides gave different outputs")
    table = Table("side", "start, s", f"{arguments.pairs} pairs, s", "least", "most", box=None)
    rows = []
    for side, runs in times.items():
        start, seconds = (sorted(column) for column in zip(*runs, strict=True))
        cells = {
            "start, s": f"{statistics.median(start):.1f}", f"{arguments.pairs:,} pairs, s": f"{statistics.median(seconds):.2f}",
            "least": f"{seconds[0]:.2f}", "most": f"{seconds[-1]:.2f}",
        }  # fmt: skip
        table.add_row(side, *cells.values())
        rows.append({"head": "side", "workload": side, "cells": cells})
    Console(width=120).print(table)
    plain, ray = (statistics.median(seconds for _, seconds in runs) for runs in times.values())
    print(
        f"overhead: {1000 * (ray - plain) / arguments.pairs:+.2f} s per 1,000 pairs, ratio {ray / plain:.2f}; outputs equal"
    )
    if arguments.keep:
        print(keep("ray_engine", rows))


def equal(one: Path, other: Path) -> None:
    """Compare the ids of all lines, and the scores of all pairs without an error."""
    rows = [[json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in (one, other)]
    same = different = skipped = 0
    if [row["id"] for row in rows[0]] != [row["id"] for row in rows[1]]:
        sys.exit("the ids are not the same in the same order")
    for left, right in zip(*rows, strict=True):
        if "error" in left or "error" in right:
            skipped += 1
        elif all(left[name] == right[name] for name in (*score_table.NAMES, "n_ref", "n_gen")):
            same += 1
        else:
            different += 1
            print(f"{left['id']}: vcs {left['vcs']!r}, {right['vcs']!r}")
    print(f"{same} pairs equal to the last bit, {different} not, {skipped} with an error in one or both")


def main() -> None:
    if sys.argv[1:2] == ["equal"]:
        equal(*map(Path, sys.argv[2:4]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs_file", type=Path)
    parser.add_argument("--distinct", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    overhead(parser.parse_args())


if __name__ == "__main__":
    main()
