"""Memory of a long job: does it grow with the number of pairs?

    python benchmarks/flat_memory.py [--pairs 36000] [--keep]

A job with a tiny random model scores made-up pairs, all different, in a process of its own. Printed is its resident
memory when a tenth, a half and all of the pairs are written, after the vectors of texts that were seen, whose
memory is bounded, were given 1 MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records import ANY, keep
from sides import peak_mb, resident_mb

SCRIPT = """
import sys
from pathlib import Path
from vcs_runtime import Options, Scorer
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.run import score_file
with Scorer.open(sys.argv[1], device="cpu", cache_mb=1) as scorer:
    score_file(scorer, Path(sys.argv[2]), JobFiles(Path(sys.argv[3]), progress=False), Options())
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=36_000)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))
    from support.stories import story
    from support.tiny_bert import build_tiny_bundle

    count = arguments.pairs
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bundle = build_tiny_bundle(folder / "tiny")
        source, output = folder / "pairs.jsonl", folder / "scores.jsonl"
        with source.open("w", encoding="utf-8") as file:
            for i in range(count):
                pair = {
                    "id": f"{i}",
                    "reference": f"Clip {i}. {story(i, 2)}",
                    "generated": f"Take {i}. {story(count + i, 2)}",
                }
                file.write(json.dumps(pair) + "\n")
        resident: dict[float, float] = {}
        peak, written, place = 0.0, 0, 0
        with subprocess.Popen([sys.executable, "-c", SCRIPT, bundle, source, output]) as job:
            while job.poll() is None:
                time.sleep(0.1)
                if output.exists():
                    with output.open("rb") as lines:
                        lines.seek(place)
                        new = lines.read()
                    place += len(new)
                    written += new.count(b"\n")
                peak = max(peak, peak_mb(job.pid))
                for share in (0.1, 0.5, 0.95):
                    if written >= share * count and share not in resident:
                        resident[share] = resident_mb(job.pid)
        if job.returncode or len(resident) < 3:
            sys.exit("the job failed")
    cells = {f"at {share:.0%}": f"{mb:.0f} MB" for share, mb in resident.items()} | {"peak": f"{peak:.0f} MB"}
    print(f"{count} pairs", cells)
    if arguments.keep:
        print(
            keep("flat_memory", [{"head": "job", "workload": f"{count:,} pairs", "cells": cells}], place=ANY)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
