"""Milliseconds from nothing to a first score, with warm caches: where they go, and this tree against another one.

    python benchmarks/start.py [--before CHECKOUT] [--before-bundle BUNDLE] [--rounds 9] [--bundle default] [--keep]

Every figure is the median of rounds, each in a process of its own. Both sides take turns. Files are in the page
cache, modules are compiled (in a temporary folder), and so are the kernels. CHECKOUT is another working tree of
this repository (`git worktree add ../before REVISION`). Two tables:

    whole     what a user waits for: commands as processes, and the parts of a program that scores one pair
    steps     what a first score consists of, one step after the other in one process, of this tree

Steps add up to more than the whole, because the whole does some of them at the same time. With --keep the medians
go into results/figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

STEPS = Path(__file__).resolve().with_name("start_steps.py")
EXAMPLES = Path(__file__).resolve().parents[1] / "docs/examples"
PAIR = [str(EXAMPLES / "reference.txt"), str(EXAMPLES / "generated.txt")]


class Side:
    """A tree whose processes are measured."""

    def __init__(self, root: Path, bundle: str, compiled: str) -> None:
        self._root = root  # Python looks for modules in the current folder first
        folders = os.pathsep.join(str(root.resolve() / part) for part in ("", "runtime", "export"))
        self._environment = {**os.environ, "PYTHONPATH": folders, "PYTHONPYCACHEPREFIX": compiled}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._bundle = bundle
        self.run("-c", "import vcs_numba; vcs_numba.warm_up()")

    def run(self, *arguments: str) -> str:
        """Run Python in this tree; returns what it printed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True, text=True, env=self._environment, cwd=self._root, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout

    def child(self, what: str) -> dict[str, float]:
        """Run `start_steps.py` in the tree; returns the milliseconds that it printed."""
        result: dict[str, float] = json.loads(self.run(str(STEPS), what, self._bundle))
        return result

    def whole(self) -> dict[str, float]:
        """Return the milliseconds of commands, and of the parts of a program."""
        result = {}
        for words in (["--version"], ["--help"], ["score", "--help"], ["score", *PAIR]):
            line = [*words, "--bundle", self._bundle] if words[-1] == PAIR[-1] else words
            started = time.perf_counter()
            self.run("-m", "vcs_runtime", *line)
            result[f"vcs-runtime {' '.join(word for word in words[:2] if word != PAIR[0])}"] = 1e3 * (
                time.perf_counter() - started
            )
        return result | self.child("program")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="a checkout of the tree to compare with")
    parser.add_argument("--before-bundle", help="the bundle of that tree (default: the same)")
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keep", action="store_true", help="keep the figures in results/figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as compiled:
        sides = {"now": Side(Path(__file__).parents[1], arguments.bundle, compiled)}
        if arguments.before:
            before = Side(arguments.before, arguments.before_bundle or arguments.bundle, compiled)
            sides = {"before": before} | sides
        times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number in range(arguments.rounds + 1):
            for name, side in sides.items():
                for part, milliseconds in side.whole().items():
                    times[part][name].append(milliseconds)
            for part, milliseconds in sides["now"].child("steps").items():
                times[part]["step"].append(milliseconds)
            if not number:  # the first round fills the caches
                times.clear()
    with suppress(BrokenPipeError):
        show(times, list(sides))
    if arguments.keep:
        from records import keep

        for name, wanted in (("start", set(sides)), ("start_steps", {"step"})):
            keep(name, [
                {"workload": part, "sides": {side: {"ms": statistics.median(values)} for side, values in found.items()}}
                for part, found in times.items() if wanted == set(found)
            ])  # fmt: skip


def show(times: dict[str, dict[str, list[float]]], sides: list[str]) -> None:
    """Print both tables: medians, and the smallest and largest of the rounds."""

    def cell(values: list[float]) -> str:
        return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"

    for columns in (sides, ["step"]):
        print(f"{'ms':38}" + "".join(f"{name:>22}" for name in columns))
        for part, found in times.items():
            if columns[0] in found:
                print(f"{part:38}" + "".join(f"{cell(found[name]):>22}" for name in columns))
        print()


if __name__ == "__main__":
    main()
