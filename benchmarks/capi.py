"""The C API: cost of a call compared with Python, speed of several threads, and memory errors.

    python benchmarks/capi.py calls PAIRS.jsonl [--rounds 40] [--threads 8] [--pairs 200]
    python benchmarks/capi.py memory [--rounds 100] [--keep]
    python benchmarks/capi.py sanitizers | valgrind [--rounds 100] [--keep]

`calls` times both sides in turns in one process. It uses pairs with known vectors, so the
difference is the cost of entering and leaving Python. The C side is timed in C, in a thread that
Python has not started. Then the example `score_threads.c` scores new texts: `--pairs` pairs for
each thread, made from the first sentences of the file's texts.

The other parts build the library and the C programs of `tests/capi` (`probe.c`, `misuse.c`).
`memory` opens a bundle, scores and closes the bundle `--rounds` times, and prints resident memory
for the default and for a tiny bundle. `sanitizers` does the same with AddressSanitizer and
UndefinedBehaviorSanitizer. It also runs every misuse that has a status, a score in many threads,
and a process that ends with everything open. `valgrind` does all this with valgrind, where a few
rounds take a quarter of an hour. An error is a message of the tool that names the library, a C
program, or one of their calls. The exit code is 1 if there is an error.

All parts need the `capi` extra and a C compiler. The last three need Python's shared library.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_double, c_size_t, c_void_p
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, keep, parser_of

from vcs_numba import Scores, score_similarity
from vcs_runtime import Scorer, capi
from vcs_runtime.capi import build as building

ROOT = Path(__file__).parents[1]
HOSTS = ROOT / "tests/capi"
SANITIZERS = "-fsanitize=address,undefined -fno-omit-frame-pointer -g"
# Python frees its memory only when the process ends, so these tools cannot recognise leaks.
# `memory` shows leaks.
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:halt_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
# Python's own allocator would hide wrong accesses to its blocks. The loader reads strings in words.
VALGRIND = [
    "valgrind",
    "--error-exitcode=0",
    "--num-callers=30",
    "--quiet",
    "--smc-check=all-non-file",
]
OURS = re.compile(r"libvcs_runtime|probe|misuse|vcs_\w+")
MESSAGE = re.compile(
    r"ERROR: AddressSanitizer.*|.*runtime error: .*|==\d+== (?:Invalid|Conditional|Use"
    r" of|Syscall|Jump).*"
)


class Hosts:
    """The library and the hosts, built with options of the compiler."""

    def __init__(self, folder: Path, options: str) -> None:
        self.folder = folder
        compiler = os.environ.get("CC", "cc")
        os.environ["CC"] = f"{compiler} {options}"
        try:
            building.build(folder)
            for name in ("probe", "misuse"):
                building.compile_c(
                    [HOSTS / f"{name}.c"],
                    folder / name,
                    "-std=c11",
                    "-pthread",
                    f"-I{folder}",
                    f"-L{folder}",
                    "-lvcs_runtime",
                    f"-Wl,-rpath,{folder}",
                )
        finally:
            os.environ["CC"] = compiler

    def run(
        self, host: str, *arguments: object, before: list[str] | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a host, below a tool."""
        command = [*(before or []), str(self.folder / host), *map(str, arguments)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=os.environ | environment,
        )


def cases(bundle: Path, damaged: Path, rounds: int) -> dict[str, tuple[object, ...]]:
    """Return what is run, by name: a host and its arguments."""
    return {
        f"{rounds} times opened, scored and closed": ("probe", "repeat", bundle, rounds),
        "every misuse that has a status": ("misuse", bundle, damaged),
        f"{rounds} threads, a score each": ("probe", "threads", bundle, rounds),
        "the process ends with everything open": ("probe", "abandon", bundle),
    }


def errors_of(done: subprocess.CompletedProcess[str]) -> tuple[list[str], list[str]]:
    """Return the messages of a tool that concern us, and the others."""
    ours, others = [], []
    for block in re.split(r"\n==\d+== \n", done.stderr):
        if found := MESSAGE.search(block):
            (ours if OURS.search(block) or "Sanitizer" in block else others).append(
                found[0].strip()
            )
    if done.returncode:
        ours.append(f"exit code {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    return ours, others


@contextmanager
def bundles() -> Iterator[tuple[Path, Path]]:
    """Give a tiny bundle, and one with a changed byte."""
    sys.path.insert(0, str(ROOT / "tests/lib"))
    from support.tiny_bert import build_tiny_bundle

    with tempfile.TemporaryDirectory() as temporary:
        tiny = build_tiny_bundle(Path(temporary, "tiny"))
        damaged = Path(shutil.copytree(tiny, Path(temporary, "damaged")))
        model = damaged / "embedder/model.onnx"
        content = bytearray(model.read_bytes())
        content[len(content) // 2] ^= 1
        model.write_bytes(content)
        yield tiny, damaged


def memory(hosts: Hosts, tiny: Path, rounds: int) -> list[dict[str, Any]]:
    """Resident memory after rounds of opening, scoring and closing."""
    rows = []
    with Scorer.open("default", "cpu") as scorer:
        signature = scorer.signature
    for name, bundle, times in (
        ("the default bundle", "default", rounds),
        ("a tiny bundle", tiny, 10 * rounds),
    ):
        done = hosts.run("probe", "repeat", bundle, times)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        mb = [int(line) / 1024 for line in done.stdout.split()]
        heads = {
            "1st round": mb[0],
            "10th": mb[9],
            "middle": mb[len(mb) // 2],
            "last": mb[-1],
            "largest": max(mb),
        }
        cells = {head: f"{value:.0f} MB" for head, value in heads.items()}
        row = {"head": "bundle", "workload": f"{name}, {times} rounds", "cells": cells}
        print(row["workload"], cells)
        rows.append(
            row | ({"signatures": {"ours default:cpu": signature}} if bundle == "default" else {})
        )
    return rows


def checked(
    tool: str,
    run: Callable[..., subprocess.CompletedProcess[str]],
    named: dict[str, tuple[object, ...]],
) -> tuple[list[dict[str, Any]], bool]:
    """Run each case below a tool; return rows, and whether anything was found."""
    rows, found = [], False
    for name, (host, *arguments) in named.items():
        ours, others = errors_of(run(host, *arguments))
        found |= bool(ours)
        print(
            f"{tool}: {name}: {len(ours)} errors, {len(others)} elsewhere",
            *sorted(set(ours + others)),
            sep="\n  ",
        )
        cells = {"errors": f"{len(ours)}", "messages about other libraries": f"{len(others)}"}
        rows.append({"head": "tool and case", "workload": f"{tool}: {name}", "cells": cells})
    return rows, found


class Loop(ctypes.Structure):
    """The struct `loop` of capi_loop.c."""

    _fields_ = (
        ("scorer", c_void_p),
        ("reference", c_char_p),
        ("generated", c_char_p),
        ("reference_len", c_size_t),
        ("generated_len", c_size_t),
        ("similarity", c_void_p),
        ("n_ref", c_size_t),
        ("n_gen", c_size_t),
        ("calls", c_size_t),
        ("result", capi.vcs_result),
        ("seconds", c_double),
    )


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


def overhead(folder: Path, pairs: list[tuple[str, str]], rounds: int) -> None:
    library = capi.load(folder / building.LIBRARY)
    source = Path(__file__).with_name("capi_loop.c")
    building.compile_c(
        [source],
        folder / "loop.so",
        "-shared",
        "-fPIC",
        "-pthread",
        f"-I{folder}",
        f"-L{folder}",
        "-lvcs_runtime",
        f"-Wl,-rpath,{folder}",
    )
    helper = ctypes.CDLL(str(folder / "loop.so"))
    model, scorer, params = c_void_p(), c_void_p(), capi.vcs_params()
    assert library.vcs_model_open(b"default", b"cpu", byref(model)) == 0
    library.vcs_params_default(byref(params))
    assert library.vcs_scorer_create(model, byref(params), byref(scorer)) == 0

    print(f"{'microseconds, medians':42}{'from Python':>12}{'from C':>12}{'difference':>12}")

    def add(name: str, times: list[tuple[float, float]]) -> None:
        python, c = (statistics.median(column) * 1e6 for column in zip(*times, strict=True))
        print(f"{name:42}{python:12.1f}{c:12.1f}{c - python:+12.1f}", flush=True)

    with Scorer.open("default", "cpu") as python:
        for name, some in (
            ("two sentences", [*map(shortened, pairs)]),
            ("whole descriptions", pairs),
        ):
            times = []
            for round_ in range(rounds + 1):
                for reference, generated in some:
                    left, right = reference.encode(), generated.encode()
                    loop = Loop(scorer, left, right, len(left), len(right), None, 0, 0, 5)
                    first = timed_in_python(
                        lambda pair=(reference, generated): python.score(*pair), 5
                    )
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
                (
                    timed_in_python(lambda m=matrix: score_similarity(m, 0.9), 100),
                    timed_in_c(helper, loop),
                )
                for _ in range(rounds)
            ],
        )
    library.vcs_scorer_destroy(scorer)
    library.vcs_model_close(model)


def throughput(folder: Path, pairs: list[tuple[str, str]], threads: int) -> dict[str, object]:
    program, file = folder / "score_threads", folder / "pairs.tsv"
    building.compile_c(
        [building.source("examples") / "score_threads.c"],
        program,
        "-pthread",
        f"-I{folder}",
        f"-L{folder}",
        "-lvcs_runtime",
        f"-Wl,-rpath,{folder}",
    )
    lines = ("\t".join(" ".join(text.split()) for text in pair) for pair in pairs)
    file.write_text("\n".join(lines) + "\n", "utf-8")
    done = subprocess.run(
        [program, file, str(threads)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def calls(path: Path, rounds: int, threads: int, count: int) -> None:
    """Print what calls cost from Python and from C, and how fast several threads are."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    texts = [(row["reference"], row["generated"]) for row in rows]
    short = [
        tuple(f"Clip {i}. {text}" for text in shortened(pair))
        for i, pair in enumerate(islice(cycle(texts), count * threads))
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        building.build(folder)
        overhead(folder, texts[:5], rounds)
        print(json.dumps(throughput(folder, short, threads)))


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["calls", "memory", "sanitizers", "valgrind"])
    parser.add_argument("pairs_file", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=200, help="for each thread")
    arguments = parser.parse_args()
    if arguments.what == "calls":
        if arguments.pairs_file is None:
            parser.error("calls needs a file of pairs")
        calls(arguments.pairs_file, arguments.rounds or 40, arguments.threads, arguments.pairs)
        return 0
    found = False
    with bundles() as (tiny, damaged), tempfile.TemporaryDirectory() as temporary:
        hosts = Hosts(Path(temporary), SANITIZERS if arguments.what == "sanitizers" else "-g")
        if arguments.what == "memory":
            rows = memory(hosts, tiny, arguments.rounds or 100)
        elif arguments.what == "sanitizers":
            run: Callable[..., Any] = lambda *what: hosts.run(*what, **ENVIRONMENT)  # noqa: E731
            rows, found = checked("ASAN, UBSAN", run, cases(tiny, damaged, arguments.rounds or 100))
        else:
            run = lambda *what: hosts.run(*what, before=VALGRIND, PYTHONMALLOC="malloc")  # noqa: E731
            rows, found = checked("valgrind", run, cases(tiny, damaged, arguments.rounds or 5))
    if arguments.keep:
        print(keep("capi_flat" if arguments.what == "memory" else "capi_memory", rows, place=ANY))
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
