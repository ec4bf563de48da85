"""The cost of a call through the C API compared with the same call from Python, and the gain of several threads.

    python benchmarks/capi.py pairs.jsonl [--rounds 40] [--threads 8] [--pairs 200]

Both sides of the first table run in one process and in turns, on the same pairs, whose vectors are already known. The
remaining work is splitting, looking up and aligning, so that the difference between the sides shows the way into Python
and back. The C side is timed in C, in a thread that Python has not started. The second part runs the example
`score_threads.c` on new texts: `--pairs` for each thread, made of the first sentences of the file's texts.
Needs the `capi` extra and a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from ctypes import byref, c_char_p, c_double, c_size_t, c_void_p
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from vcs_numba import Scores, score_similarity
from vcs_runtime import Scorer, capi
from vcs_runtime.capi import build as building


class Loop(ctypes.Structure):
    """The struct `loop` of capi_loop.c."""

    _fields_ = (
        ("scorer", c_void_p), ("reference", c_char_p), ("generated", c_char_p),
        ("reference_len", c_size_t), ("generated_len", c_size_t), ("similarity", c_void_p),
        ("n_ref", c_size_t), ("n_gen", c_size_t), ("calls", c_size_t),
        ("result", capi.vcs_result), ("seconds", c_double),
    )  # fmt: skip


def shortened(pair: tuple[str, str]) -> tuple[str, ...]:
    return tuple(". ".join(text.split(". ")[:2]) + "." for text in pair)


def timed_in_c(helper: ctypes.CDLL, loop: Loop) -> float:
    helper.run_loop(byref(loop))
    assert loop.result.status == 0
    return loop.seconds / loop.calls


def timed_in_python(call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def overhead(folder: Path, pairs: list[tuple[str, str]], rounds: int) -> Table:
    library = capi.load(folder / building.LIBRARY)
    source = Path(__file__).with_name("capi_loop.c")
    building.compile_c(
        [source], folder / "loop.so", "-shared", "-fPIC", "-pthread", f"-I{folder}", f"-L{folder}", "-lvcs_runtime",
        f"-Wl,-rpath,{folder}",
    )  # fmt: skip
    helper = ctypes.CDLL(str(folder / "loop.so"))
    model, scorer, params = c_void_p(), c_void_p(), capi.vcs_params()
    assert library.vcs_model_open(b"default", b"cpu", byref(model)) == 0
    library.vcs_params_default(byref(params))
    assert library.vcs_scorer_create(model, byref(params), byref(scorer)) == 0

    table = Table(
        "call", "from Python", "from C", "difference", "best, Python", "best, C", "difference",
        title="a call, microseconds: medians, and the best of all rounds",
    )  # fmt: skip

    def add(name: str, times: list[tuple[float, float]]) -> None:
        cells = [name]
        for middle in (statistics.median, min):
            python, c = (middle(column) * 1e6 for column in zip(*times, strict=True))
            cells += [f"{python:.1f}", f"{c:.1f}", f"{c - python:+.1f}"]
        table.add_row(*cells)

    with Scorer.open("default", "cpu") as python:
        for name, some in (("two sentences", [*map(shortened, pairs)]), ("whole descriptions", pairs)):
            times = []
            for round_ in range(rounds + 1):
                for reference, generated in some:
                    left, right = reference.encode(), generated.encode()
                    loop = Loop(scorer, left, right, len(left), len(right), None, 0, 0, 5)
                    first = timed_in_python(lambda pair=(reference, generated): python.score(*pair), 5)
                    second = timed_in_c(helper, loop)
                    assert python.score(reference, generated).scores == Scores(
                        *(getattr(loop.result, name) for name in Scores._fields)
                    )
                    if round_:  # the model runs in the first round
                        times.append((first, second))
            add(f"vcs_score, {name}, vectors known", times)
    for size in (20, 200):
        matrix = np.random.default_rng(size).random((size, size))
        loop = Loop(None, None, None, 0, 0, matrix.ctypes.data, size, size, 100)
        add(
            f"vcs_align_f64, {size} x {size}",
            [
                (timed_in_python(lambda m=matrix: score_similarity(m, 0.9), 100), timed_in_c(helper, loop))
                for _ in range(rounds)
            ],
        )
    library.vcs_scorer_destroy(scorer)
    library.vcs_model_close(model)
    return table


def throughput(folder: Path, pairs: list[tuple[str, str]], threads: int) -> dict[str, object]:
    program, file = folder / "score_threads", folder / "pairs.tsv"
    building.compile_c(
        [building.source("examples") / "score_threads.c"], program, "-pthread", f"-I{folder}", f"-L{folder}",
        "-lvcs_runtime", f"-Wl,-rpath,{folder}",
    )  # fmt: skip
    lines = ("\t".join(" ".join(text.split()) for text in pair) for pair in pairs)
    file.write_text("\n".join(lines) + "\n", "utf-8")
    done = subprocess.run([program, file, str(threads)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs_file", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=200, help="for each thread")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.pairs_file.read_text("utf-8").splitlines()]
    texts = [(row["reference"], row["generated"]) for row in rows]
    # The number makes the texts of every pair different.
    short = [
        tuple(f"Clip {i}. {text}" for text in shortened(pair))
        for i, pair in enumerate(islice(cycle(texts), arguments.pairs * arguments.threads))
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        building.build(folder)
        Console(width=130).print(overhead(folder, texts[:5], arguments.rounds))
        print(json.dumps(throughput(folder, short, arguments.threads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
