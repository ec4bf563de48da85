"""Whether the same pairs get the same lines: a whole job beside jobs that were disturbed.

    python benchmarks/reproducibility.py pairs.jsonl [--pairs 120] [--part 40] [--keep]

`pairs.py` makes files of pairs. A job scores `--pairs` of them. Others score the same pairs, or a part, and their lines
must have the same bytes:

    part              `--part` pairs drawn at random, in another order
    without network   the part again, in a network namespace without a network, where torch, transformers and
                      optimum cannot be imported; left out where the system has no `unshare -rn`
    one thread        the part on one thread
    killed            all pairs, killed with SIGKILL when some lines are written, and continued with --resume
    stored vectors    all pairs twice with --cache, so that the second job runs no model
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records import ANY, keep

SCORE = ["-m", "vcs_runtime", "score"]
BARRED = """
import sys

class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "optimum"):
            raise ImportError(f"{name} is barred here")

sys.meta_path.insert(0, Barred())
"""


def score(
    pairs: Path, output: Path, *options: str, before: tuple[str, ...] = (), path: Path | None = None
) -> None:
    """Run a job; it must succeed."""
    environment = dict(os.environ)
    if path:
        environment["PYTHONPATH"] = f"{path}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [*before, sys.executable, *SCORE, pairs, "-o", output, *options],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)


def killed(pairs: Path, output: Path) -> int:
    """Kill a job when a third of its lines is written, continue it, and return how many lines it had."""
    wanted = len(pairs.read_bytes().splitlines()) // 3
    with subprocess.Popen(
        [sys.executable, *SCORE, pairs, "-o", output], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        lines = 0
        while job.poll() is None and lines < wanted:
            time.sleep(0.05)
            lines = output.read_bytes().count(b"\n") if output.exists() else 0
        if job.poll() is not None:
            sys.exit("the job ended before it could be killed")
        job.send_signal(signal.SIGKILL)
    lines = output.read_bytes().count(b"\n")
    score(pairs, output, "--resume")
    return lines


def lines_of(output: Path) -> dict[str, bytes]:
    return {json.loads(line)["id"]: line for line in output.read_bytes().splitlines()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs_file", type=Path)
    parser.add_argument("--pairs", type=int, default=120)
    parser.add_argument("--part", type=int, default=40)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    draw = random.Random(0)
    every = arguments.pairs_file.read_text("utf-8").splitlines()
    chosen = draw.sample(every, min(arguments.pairs, len(every)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        whole, part, barred = folder / "whole.jsonl", folder / "part.jsonl", folder / "barred"
        whole.write_text("\n".join(chosen) + "\n", "utf-8")
        part.write_text("\n".join(draw.sample(chosen, min(arguments.part, len(chosen)))) + "\n", "utf-8")
        barred.mkdir()
        (barred / "sitecustomize.py").write_text(BARRED)
        score(whole, folder / "expected.jsonl")
        expected = lines_of(folder / "expected.jsonl")
        outputs: dict[str, Path] = {}

        def job(name: str) -> Path:
            outputs[name] = folder / f"{len(outputs)}.jsonl"
            return outputs[name]

        score(part, job(f"{arguments.part} of them, in another order"))
        score(part, job(f"{arguments.part} of them, on one thread"), "--threads", "1")
        if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
            print("no network namespace to be had: left out")
        else:
            name = f"{arguments.part} of them, without a network, torch, transformers and optimum"
            score(part, job(name), before=("unshare", "-rn"), path=barred)
        at = killed(whole, job("all, killed and continued"))
        print(f"killed after {at} lines")
        score(whole, folder / "first.jsonl", "--cache", f"{folder}/vectors")
        score(whole, job("all, from stored vectors"), "--cache", f"{folder}/vectors")
        signature = json.loads(next(iter(expected.values())))["signature"]
        rows, differing = [], 0
        for name, output in outputs.items():
            lines = lines_of(output)
            differ = sum(line != expected[identifier] for identifier, line in lines.items())
            differing += differ
            cells = {"lines compared": f"{len(lines)}", "of other bytes": f"{differ}"}
            rows.append({
                "head": f"beside a job of {len(expected)} pairs", "workload": name, "cells": cells,
                "signatures": {"ours default:cpu": signature},
            })  # fmt: skip
            print(name, cells)
    if arguments.keep:
        print(keep("reproducibility", rows, place=ANY))
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
