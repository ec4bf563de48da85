"""Whether the C API reads or writes memory that is not its own, and whether the memory of a process stays flat.

    python benchmarks/capi_memory.py [--rounds 100] [--valgrind-rounds 5] [--only NAME ...] [--keep]

`make capi-sanitize` runs it. Each part builds the library and the hosts of `tests/capi` (`probe.c`, `misuse.c`):

    memory      opens a bundle, scores and closes it, `--rounds` times: resident memory, with the default and a tiny bundle
    sanitizers  the same with AddressSanitizer and UndefinedBehaviorSanitizer of the C compiler in library and hosts,
                then every misuse that has a status, a score in many threads, and a process that ends with all open
    valgrind    the same under valgrind, fewer rounds, with a tiny bundle; left out where there is no valgrind

An error is a message of the tool that names the library, a host, or one of their calls. The exit code is 1 if there is
one. Needs the `capi` extra, a C compiler, and Python's shared library.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from records import ANY, keep

from vcs_runtime import Scorer
from vcs_runtime.capi import build as building

ROOT = Path(__file__).parents[1]
HOSTS = ROOT / "tests/capi"
SANITIZERS = "-fsanitize=address,undefined -fno-omit-frame-pointer -g"
# Python keeps what it has allocated until the process ends, so leaks cannot be told from that: `memory` shows them.
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:halt_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
# Python's own allocator hides wrong accesses to its blocks; the loader reads strings by the word.
VALGRIND = ["valgrind", "--error-exitcode=0", "--num-callers=30", "--quiet", "--smc-check=all-non-file"]
OURS = re.compile(r"libvcs_runtime|probe|misuse|vcs_\w+")
MESSAGE = re.compile(
    r"ERROR: AddressSanitizer.*|.*runtime error: .*|==\d+== (?:Invalid|Conditional|Use of|Syscall|Jump).*"
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
                    [HOSTS / f"{name}.c"], folder / name, "-std=c11", "-pthread", f"-I{folder}", f"-L{folder}",
                    "-lvcs_runtime", f"-Wl,-rpath,{folder}",
                )  # fmt: skip
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
            (ours if OURS.search(block) or "Sanitizer" in block else others).append(found[0].strip())
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
        ("the embedded default", "default", rounds),
        ("a tiny bundle", tiny, 10 * rounds),
    ):
        done = hosts.run("probe", "repeat", bundle, times)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        mb = [int(line) / 1024 for line in done.stdout.split()]
        heads = {
            "1st round": mb[0], "10th": mb[9], "middle": mb[len(mb) // 2], "last": mb[-1], "largest": max(mb)
        }  # fmt: skip
        cells = {head: f"{value:.0f} MB" for head, value in heads.items()}
        row = {"head": "bundle", "workload": f"{name}, {times} rounds", "cells": cells}
        rows.append(row | ({"signatures": {"ours default:cpu": signature}} if bundle == "default" else {}))
    return rows


def checked(
    tool: str, run: Callable[..., subprocess.CompletedProcess[str]], named: dict[str, tuple[object, ...]]
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--valgrind-rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=("memory", "sanitizers", "valgrind"))
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    parts = arguments.only or ["memory", "sanitizers", "valgrind"]
    flat: list[dict[str, Any]] = []
    clean: list[dict[str, Any]] = []
    found = False
    with bundles() as (tiny, damaged), tempfile.TemporaryDirectory() as temporary:
        plain = Hosts(Path(temporary, "plain"), "-g")
        if "memory" in parts:
            flat = memory(plain, tiny, arguments.rounds)
            for row in flat:
                print(row["workload"], row["cells"])
        if "sanitizers" in parts:
            hosts = Hosts(Path(temporary, "sanitized"), SANITIZERS)
            rows, wrong = checked(
                "ASAN, UBSAN", lambda *what: hosts.run(*what, **ENVIRONMENT), cases(tiny, damaged, arguments.rounds)
            )  # fmt: skip
            clean, found = clean + rows, found | wrong
        if "valgrind" in parts and shutil.which("valgrind"):
            rows, wrong = checked(
                "valgrind",
                lambda *what: plain.run(*what, before=VALGRIND, PYTHONMALLOC="malloc"),
                cases(tiny, damaged, arguments.valgrind_rounds),
            )
            clean, found = clean + rows, found | wrong
        elif "valgrind" in parts:
            print("valgrind: not installed, left out")
    if arguments.keep:
        for name, rows in (("capi_flat", flat), ("capi_memory", clean)):
            if rows:
                print(keep(name, rows, place=ANY))
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
