"""What `--device openvino` costs and changes on this processor: start, memory, speed, scores.

    python benchmarks/processors.py pairs.jsonl [--pairs 170] [--speed-pairs 24] [--rounds 3] [--isa NAME ...]
    python benchmarks/processors.py --cache MODEL.onnx ...

The embedded default on `cpu`, `openvino:fp32` and `openvino`. Each of `--isa` is one more side: `openvino` where
oneDNN may use no more than these instructions, such as AVX512_CORE_BF16 for a processor without AMX. Each side
runs in a process of its own, in turns. Run it once before, so that the alignment core is compiled.

    start    seconds to import the package, to open both models, and for the first score: medians of `--rounds`
    memory   MB of resident memory, its peak, and the part that is not a file's: after opening, after the job
    speed    the first `--speed-pairs` pairs in one `score_many`, as a ratio to `cpu`: medians of `--rounds`
    scores   difference from `cpu` over `--pairs` pairs, taken evenly from the file: the largest, the mean, and
             the pairs whose score differs by more than .01; and how many pairs were cut into other chunks

    cache    seconds to compile a model for OpenVINO: without its cache, with an empty one, with a full one; and MB of
             the cache and of the weights. vcs-runtime keeps no such cache, which this is the reason for

Both models run: a text with little punctuation goes to the learned segmenter. Needs the extra `openvino`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sides import measure, peak_mb, resident_mb

SCORES = ("vcs", "gas", "las", "nas", "margin")


def own_mb() -> float:
    """Resident memory that is no file's: files of weights can be read again, so they need not stay."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Anonymous:\s+(\d+) kB", rollup)[1]) / 1024


def child(path: Path) -> None:
    """Open, score, and print seconds, memory and scores."""
    work = json.loads(path.read_text("utf-8"))
    if "model" in work:
        print(json.dumps({"seconds": compile_seconds(work["model"], "bf16", work["cache"])}))
        return
    if work["isa"]:
        os.environ["ONEDNN_MAX_CPU_ISA"] = work["isa"]
    ticks = [time.perf_counter()]
    from vcs_runtime import Scorer

    ticks.append(time.perf_counter())
    with Scorer.open("default", work["device"]) as scorer:
        ticks.append(time.perf_counter())
        scorer.score("A man opens a door. He walks in.", "A man opens a door. A dog barks.")
        ticks.append(time.perf_counter())
        memory = [resident_mb(), peak_mb(), own_mb()]
        started = time.perf_counter()
        results = scorer.score_many(work["pairs"])
        seconds = time.perf_counter() - started
        memory += [resident_mb(), peak_mb(), own_mb()]
        print(
            json.dumps(
                {
                    "start": [b - a for a, b in itertools.pairwise(ticks)],
                    "memory": memory,
                    "seconds": seconds,
                    "signature": scorer.signature,
                    "rows": [
                        None
                        if result.error
                        else [result.n_ref, result.n_gen, *(getattr(result.scores, s) for s in SCORES)]
                        for result in results
                    ],
                }
            )
        )


def compile_seconds(model: str, precision: str, folder: str) -> float:
    """Seconds of reading and compiling a model in this process, with a cache in `folder` unless it is ""."""
    from vcs_runtime.inference.openvino import import_openvino

    core = import_openvino().Core()
    if folder:
        core.set_property({"CACHE_DIR": folder})
    started = time.perf_counter()
    core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"})
    return time.perf_counter() - started


def print_cache(model: Path, rounds: int) -> None:
    """Print what OpenVINO's cache of compiled models saves and takes: medians of the rounds."""
    times: dict[str, list[float]] = {"without": [], "empty": [], "full": []}
    with tempfile.TemporaryDirectory() as name:
        for round_ in range(rounds):
            folder = str(Path(name) / str(round_))
            for kind, cache in (("without", ""), ("empty", folder), ("full", folder)):
                work = {"model": str(model), "cache": cache}
                times[kind].append(measure(__file__, Path(name), **work)["seconds"])
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
    weights = sum(path.stat().st_size for path in model.parent.glob(f"{model.name}*")) / 1e6
    cells = ", ".join(f"{kind} {statistics.median(values):.2f} s" for kind, values in times.items())
    print(f"{model}: {cells}; cache {size:.0f} MB, weights {weights:.0f} MB")


def evenly(rows: list[Any], count: int) -> list[Any]:
    """Take so many rows from all places of a list."""
    step = max(1, len(rows) // count)
    return rows[::step][:count]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument("--pairs", dest="count", type=int, default=170)
    parser.add_argument("--speed-pairs", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--isa", nargs="*", default=[])
    parser.add_argument("--cache", type=Path, nargs="+", metavar="MODEL")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    if arguments.cache:
        for model in arguments.cache:
            print_cache(model, arguments.rounds)
        return
    if arguments.pairs is None:
        parser.error("a file of pairs is needed")
    rows = [json.loads(line) for line in arguments.pairs.read_text("utf-8").splitlines()]
    pairs = [(row["reference"], row["generated"]) for row in rows]
    sides = [
        ("cpu", ""),
        ("openvino:fp32", ""),
        ("openvino", ""),
        *(("openvino", isa) for isa in arguments.isa),
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.rounds:
            print_speed(folder, sides, evenly(pairs, arguments.speed_pairs), arguments.rounds)
        if arguments.count:
            print_scores(folder, sides, evenly(pairs, arguments.count))


def print_speed(folder: Path, sides: list[tuple[str, str]], pairs: list[Any], rounds: int) -> None:
    """Print start, memory and speed of each side: medians of the rounds."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(rounds):
        for device, isa in sides:
            run = measure(__file__, folder, device=device, isa=isa, pairs=pairs)
            runs[device, isa].append(run)
            print(f"{device} {isa} {run['seconds']:.1f} s", file=sys.stderr, flush=True)
    print(f"\n{len(pairs)} pairs, {rounds} rounds\n")
    print(
        "| side | import | open | first score | opened: MB, peak, own | job: MB, peak, own | pairs/s | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    base = statistics.median(run["seconds"] for run in runs[sides[0]])
    for side in sides:
        start = [statistics.median(run["start"][i] for run in runs[side]) for i in range(3)]
        memory = [statistics.median(run["memory"][i] for run in runs[side]) for i in range(6)]
        seconds = statistics.median(run["seconds"] for run in runs[side])
        times = " | ".join(f"{value:.2f} s" for value in start)
        megabytes = " | ".join(
            ", ".join(f"{value:.0f}" for value in part) for part in (memory[:3], memory[3:])
        )
        print(
            f"| {' '.join(side)} | {times} | {megabytes} | {len(pairs) / seconds:.2f} | {base / seconds:.2f} |"
        )


def print_scores(folder: Path, sides: list[tuple[str, str]], pairs: list[Any]) -> None:
    """Print how far the scores of each side are from those of the first."""
    runs = {side: measure(__file__, folder, device=side[0], isa=side[1], pairs=pairs) for side in sides}
    first = runs[sides[0]]["rows"]
    print(f"\n{len(pairs)} pairs, {sum(row is not None for row in first)} scored\n")
    print("| side | other chunks | " + " | ".join(f"{s}: largest, mean, over .01" for s in SCORES) + " |")
    print("|---" * (2 + len(SCORES)) + "|")
    for side in sides[1:]:
        both = [(a, b) for a, b in zip(first, runs[side]["rows"], strict=True) if a and b]
        cut = sum(a[:2] != b[:2] for a, b in both)
        cells = []
        for i in range(len(SCORES)):
            gaps = [abs(a[2 + i] - b[2 + i]) for a, b in both if a[:2] == b[:2]]
            cells.append(f"{max(gaps):.1e}, {statistics.mean(gaps):.1e}, {sum(g > 0.01 for g in gaps)}")
        print(f"| {' '.join(side)} | {cut} | {' | '.join(cells)} |")
    for side in sides:
        print(f"\n{' '.join(side)}: {runs[side]['signature']}")


if __name__ == "__main__":
    main()
