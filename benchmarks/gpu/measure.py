"""What this runtime does on a GPU, of one size: builds what it needs, checks it, times it, in one call.

    python benchmarks/gpu/measure.py [--work DIR] [--minutes 9] [--only SECTION ...] [--precision fp16 bf16]
    python benchmarks/gpu/measure.py --tiny        # the same script on a CPU and a small model: that it runs, no figures

Needs PyTorch and `vcs-runtime[gpu,export]`. Weights are random, in NV-Embed-v2's published layout and size (15.7 GB),
made there; nothing is downloaded. The other side is the published forward pass in PyTorch (`random_model.py`).

Each section runs in a process of its own, so that its memory is its own, with a share of the time that is left.
One that fails, or for which something is missing, is a line that says so; the rest goes on. Sections:

    machine     GPU, driver, versions, the rate of bare matrix products (bf16, fp16, fp8)
    speed       tokens a second, and share of that rate, on chunks, documents and a mix, packed and padded
    pytorch     the same texts through the published model: eager, fused attention, without padding
    pairs       pairs a second without and with cached references; p50 and p99 of one warm pair, beside its floor
    memory      peak against the weights, after release(), growth over 2,000 batches, each way to keep the arena
    error       against PyTorch in float32; how far a text's vector depends on its batch, and without mixing
    attention   which attention ONNX Runtime took
    fp8         a bundle in FP8 beside one in bf16: speed and error; ONNX Runtime's own product with FP8 weights
    graphs      one shape run by run and as a CUDA graph: what recording would save
    sat         12 layers at real size, against wtpsplit where it is installed
    engines     TensorRT: build, load, parity, speed, where its libraries are

A table goes to standard output, JSON to benchmarks/results/ (of --tiny: to the work folder).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from checks import attention, engines, error, memory
from forms import fp8, graphs
from speed import machine, pairs, pytorch, sat, speed
from work import Row, Unmeasured, Work

sys.path.append(str(Path(__file__).parents[1]))  # `random_model` imports nv_embed_counts
RESULTS = Path(__file__).parents[1] / "results"
_KEEP = 60.0  # seconds that a section gets at least

SECTIONS: dict[str, Callable[[Work], Iterator[Row]]] = {
    section.__name__: section
    for section in (machine, speed, pytorch, pairs, error, memory, attention, fp8, graphs, sat, engines)
}


def child(path: Path) -> None:
    """Run one section; a line of JSON a row, at once, so that what was measured before a failure stays."""
    told = json.loads(path.read_text("utf-8"))
    work = Work(Path(told["folder"]), told["tiny"], told["precision"], told["seconds"])
    rows = SECTIONS[told["section"]](work)
    try:
        for row in rows:
            print("row " + json.dumps(row), flush=True)
    except Unmeasured as why:
        print("row " + json.dumps({"what": "not measured", "why": str(why)}), flush=True)


def run_section(name: str, folder: Path, tiny: bool, precision: str, seconds: float) -> list[Row]:
    path = folder / "work.json"
    path.write_text(
        json.dumps(
            {"section": name, "folder": str(folder), "tiny": tiny, "precision": precision, "seconds": seconds}
        )
    )
    started = time.monotonic()
    command = [sys.executable, __file__, "--child", str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=2 * seconds + _KEEP
        )
        out, failure = done.stdout, done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        out, failure = (late.stdout or b"").decode(), f"stopped after {late.timeout:.0f} s"
    rows = [json.loads(line[4:]) for line in out.splitlines() if line.startswith("row ")]
    if failure:
        rows.append({"what": "failed", "error": failure.strip()[-1500:]})
    return [{"section": name, "precision": precision, **row} for row in rows] + [
        {"section": name, "precision": precision, "what": "seconds", "value": time.monotonic() - started}
    ]


def show(rows: list[Row]) -> None:
    for row in rows:
        figures = [
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
            if key not in ("section", "what", "precision")
        ]
        print(f"{row['section']:10} {row['what']:46} {'; '.join(figures)}", flush=True)


def _shares(rows: list[Row]) -> list[Row]:
    """Shares of the machine's matrix rate, and ratios to PyTorch, of what was measured of both."""
    peaks = {
        row["what"].split()[-1]: row["TFLOP/s"] for row in rows if row["what"].startswith("matrix product")
    }
    theirs = {
        row["what"]: row["tokens/s"] for row in rows if row["section"] == "pytorch" and "tokens/s" in row
    }
    found = []
    for row in rows:
        if "TFLOP" in row and (peak := peaks.get(row["precision"])):
            floor = 1e3 * row["TFLOP"] / peak
            found.append({
                "section": "ratios", "what": row["what"], "precision": row["precision"], "floor ms": floor,
                "p50 in floors": row["p50 ms"] / floor,
            })  # fmt: skip
        if row["section"] != "speed" or "tokens/s" not in row:
            continue
        ratios = {
            f"times PyTorch {attention}": row["tokens/s"] / theirs[key]
            for attention in ("eager", "sdpa", "unpadded")
            if (key := f"{row['what'].split(',')[0]}, PyTorch {attention}") in theirs
        }
        if peak := peaks.get(row["precision"]):
            ratios["share of the matrix rate"] = row["TFLOP/s"] / peak
        found.append({"section": "ratios", "what": row["what"], "precision": row["precision"], **ratios})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    parser.add_argument("--work", type=Path, help="folder for weights and bundles (50 GB); kept if given")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all sections; what is left is shared")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--precision", nargs="+", choices=["fp16", "bf16"], default=["fp16", "bf16"])
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    from random_model import size, write_checkpoint

    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        rows: list[Row] = []
        if not (folder / "checkpoint/tokenizer.json").exists():
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            (folder / "checkpoint").mkdir()
            write_checkpoint(folder / "checkpoint", size(arguments.tiny))
            rows.append({"section": "weights", "what": "seconds", "value": time.monotonic() - started})
            show(rows)
        precisions = ["fp32"] if arguments.tiny else arguments.precision
        jobs = [(name, precision) for precision in precisions for name in arguments.only]
        # What does not depend on the precision of our graph is run once.
        jobs = [
            job
            for job in jobs
            if job[1] == precisions[0] or job[0] in ("speed", "pairs", "error", "attention")
        ]
        for done, (name, precision) in enumerate(jobs):
            left = 60 * arguments.minutes - (time.monotonic() - started)
            seconds = max(left / (len(jobs) - done), 5.0)
            fresh = (
                run_section(name, folder, arguments.tiny, precision, seconds)
                if left > 0
                else [
                    {"section": name, "precision": precision, "what": "not measured", "why": "no time left"}
                ]
            )
            show(fresh)
            rows += fresh
        shares = [] if arguments.tiny else _shares(rows)
        show(shares)
        stamp = time.strftime("%Y-%m-%dT%H-%M")
        target = arguments.json or (folder if arguments.tiny else RESULTS) / f"gpu-{stamp}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            json.dumps({"date": stamp, "tiny": arguments.tiny, "rows": rows + shares}, indent=1) + "\n"
        )
        print(target)


if __name__ == "__main__":
    main()
