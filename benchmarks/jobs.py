"""Time and peak memory of a whole job: `vcs-runtime score` with a file of pairs, as a process.

    python benchmarks/jobs.py pairs.jsonl --name "17 systems x 100 CLIP-CC videos" [--devices cpu openvino] [--keep]

`pairs.py clip-cc` makes the file. The peak is the peak of resident memory that the system counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from records import keep, parser_of, peak_mb

FAILED_PAIRS = 1  # exit code of `vcs-runtime score` when some pairs have no score


def run(pairs: Path, output: Path, options: list[str]) -> dict[str, Any]:
    """Score a file in a process; return seconds, peak memory, and how many pairs have scores."""
    command = [
        sys.executable,
        "-m",
        "vcs_runtime",
        "score",
        str(pairs),
        "-o",
        str(output),
        *options,
    ]
    started, peak = time.perf_counter(), 0.0
    with (
        tempfile.TemporaryFile("w+") as messages,
        subprocess.Popen(command, stdout=messages, stderr=messages) as job,
    ):
        while job.poll() is None:
            peak = max(peak, peak_mb(job.pid))
            time.sleep(0.2)
        seconds = time.perf_counter() - started
        messages.seek(0)
        if job.returncode not in (0, FAILED_PAIRS):
            sys.exit(messages.read())
    scored = [
        row for row in map(json.loads, output.read_text("utf-8").splitlines()) if "vcs" in row
    ]
    return {
        "seconds": round(seconds, 1),
        "peak_mb": round(peak),
        "scored": len(scored),
        "signature": scored[0]["signature"],
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--name", required=True, help="what the pairs are, for the table")
    parser.add_argument("--devices", nargs="+", default=["cpu"], metavar="[BUNDLE:]DEVICE")
    arguments = parser.parse_args()
    sides = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(arguments.devices):
            bundle, _, device = name.rpartition(":")
            options = ["--device", device]
            if bundle:
                options += ["--bundle", bundle]
            sides[name] = run(arguments.pairs, Path(folder) / f"{number}.jsonl", options)
            print(name, sides[name])
    signatures = {name: figures.pop("signature") for name, figures in sides.items()}
    if arguments.keep:
        row = {"workload": arguments.name, "sides": sides, "signatures": signatures}
        print(keep("jobs", [row]))


if __name__ == "__main__":
    main()
