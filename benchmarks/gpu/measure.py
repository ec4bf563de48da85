"""What this runtime does on a GPU, measured in ten minutes by one process, on a machine that may have no network.

    python benchmarks/gpu/measure.py [--json RESULTS.json] [--only SECTION ...] [--minutes 9.5] [--work DIR]
    python benchmarks/gpu/measure.py --resume RESULTS.json      # the sections that are not done yet
    python benchmarks/gpu/measure.py --tiny [--device cuda:0]   # a small model, on the CPU or a GPU: that all of it runs

Needs `vcs-runtime[gpu,export]`, and PyTorch for what is compared with it. Weights are made up, in NV-Embed-v2's
published size (15.7 GB, with bundles 24 GB, in /dev/shm if there is room). Nothing is downloaded. Sections, with the
minutes that each has:

    machine      .7  GPU, libraries, rates of bare matrix products and copies; makes the weights
    correctness  .6  64 texts beside the original in PyTorch, float32, for each graph (first layers)
    packed      1.6  the graph of every provider: 27 texts of 600 tokens, 630 of 26, a block of 40 pairs, one pair:
                     tokens a second, and the time of each kind of kernel
    varlen      1.5  the same of the graph for CUDA alone
    score       1.4  pairs a second of a job, busy share of the GPU, p50 and p99 of one pair; references cached
    precisions  1.4  bf16, int8 and fp8 beside fp16 (first layers): speed, and error with planted outliers
    peers       1.0  the original in PyTorch without padding, as it is and compiled; vLLM if installed
    memory       .5  without and with a limit, for both ways in which the arena grows
    batches      .4  a text alone and among others
    segmenter    .4  SaT of 12 layers; wtpsplit if installed

A row is written to the JSON file as soon as it is measured, so a run that is stopped loses nothing. A section that
fails, or for which something is missing, is a row that says so, and the rest goes on. Time that a section leaves over
is the next one's. `table.py` makes the table of the manual from the JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from ctypes import CDLL, RTLD_GLOBAL
from pathlib import Path
from typing import Any

from service import batches, memory, score, segmenter
from speed import correctness, machine, packed, peers, precisions, varlen
from work import Row, Unmeasured, Work

RESULTS = Path(__file__).resolve().parents[1] / "results"
MINUTES = 9.5
_DISK = 24e9
Section = Callable[[Work], Iterator[Row]]
SECTIONS: dict[str, tuple[Section, float]] = {
    section.__name__: (section, minutes)
    for section, minutes in (
        (machine, 0.7), (correctness, 0.6), (packed, 1.6), (varlen, 1.5), (score, 1.4), (precisions, 1.4),
        (peers, 1.0), (memory, 0.5), (batches, 0.4), (segmenter, 0.4),
    )
}  # fmt: skip


class Results:
    """Rows and states of sections, in a JSON file that is whole at every moment."""

    def __init__(self, path: Path, tiny: bool, resume: bool) -> None:
        self.path = path
        self.content: dict[str, Any] = {"schema": 1, "tiny": tiny, "sections": {}, "rows": []}
        if resume:
            self.content = json.loads(path.read_text("utf-8"))
            if self.content.get("schema") != 1 or self.content["tiny"] != tiny:
                sys.exit(f"{path} was not written by a run like this one")

    def done(self, section: str) -> bool:
        """Whether a section was measured to its end."""
        return bool(self.content["sections"].get(section, {}).get("state") == "done")

    def start(self, section: str) -> None:
        """Begin a section; rows of a run that was stopped in it go."""
        self.content["rows"] = [row for row in self.content["rows"] if row["section"] != section]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.content["sections"][section] = {"state": "running", "started": stamp}
        self._write()

    def add(self, section: str, row: Row) -> None:
        """Write a row, and print it."""
        self.content["rows"].append({"section": section, **row})
        self._write()
        figures = [
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
            if key not in ("what", "costliest")
        ]
        print(f"{section:11} {row['what']:44} {'; '.join(figures)}", flush=True)

    def end(self, section: str, state: str, seconds: float) -> None:
        """End a section as "done" or "failed"."""
        self.content["sections"][section] |= {"state": state, "seconds": round(seconds, 1)}
        self._write()

    def _write(self) -> None:
        beside = self.path.with_name(f".{self.path.name}.partial")
        beside.write_text(json.dumps(self.content, indent=1) + "\n", "utf-8")
        os.replace(beside, self.path)


def measure(work: Work, results: Results, names: list[str], minutes: float) -> None:
    """Measure sections one after the other, each until its share of the time is over."""
    begun = time.monotonic()
    share = 60 * minutes / sum(SECTIONS[name][1] for name in names)
    planned = begun
    for name in names:
        section, weight = SECTIONS[name]
        planned += share * weight
        started = time.monotonic()
        # A section that comes late still gets a third of its time.
        work.until = max(planned, started + share * weight / 3)
        results.start(name)
        state = "done"
        try:
            for row in section(work):
                results.add(name, row)
        except Unmeasured as why:
            results.add(name, {"what": "all of it", "not measured": str(why)})
        except Exception as failure:  # the other sections say something all the same
            state = "failed"
            where = traceback.extract_tb(failure.__traceback__)[-1]
            words = f"{type(failure).__name__}: {failure}"[:1500]
            results.add(
                name,
                {"what": "all of it", "failed": words, "at": f"{Path(where.filename).name}:{where.lineno}"},
            )
        results.end(name, state, time.monotonic() - started)


def load_libraries() -> None:
    """Load CUDA's libraries from PyTorch and its packages: ONNX Runtime's own loader looks only beside itself."""
    if importlib.util.find_spec("torch"):
        import torch  # noqa: F401 - loads most of them
    if spec := importlib.util.find_spec("nvidia"):
        for folder in spec.submodule_search_locations or ():
            for name in (
                "libcudart.so.13",
                "libcublasLt.so.13",
                "libcublas.so.13",
                "libcurand.so.10",
                "libcudnn.so.9",
            ):
                for path in Path(folder).glob(f"**/lib/{name}"):
                    with contextlib.suppress(OSError):
                        CDLL(str(path), mode=RTLD_GLOBAL)


def place() -> Path:
    """Return the folder with room for the weights: memory if there is, otherwise the temporary folder."""
    for folder in (Path("/dev/shm"), Path(tempfile.gettempdir())):
        if folder.is_dir() and shutil.disk_usage(folder).free > _DISK:
            return folder
    sys.exit(f"neither /dev/shm nor {tempfile.gettempdir()} has {_DISK / 1e9:.0f} GB: --work DIR")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a small model, on the CPU unless --device says otherwise"
    )
    parser.add_argument("--device", help="cuda:N, or cpu for a small model [default: cuda:0]")
    parser.add_argument("--work", type=Path, help="folder for weights and bundles; kept if named")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all sections together [9.5]")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--json", type=Path, help="file of the results [benchmarks/results/gpu-TIME.json]")
    parser.add_argument("--resume", type=Path, help="file of results to continue")
    arguments = parser.parse_args()
    if arguments.resume and arguments.json:
        parser.error("--resume writes to its own file: leave out --json")
    path = arguments.resume or arguments.json
    if path is None:
        path = Path(f"gpu-{'tiny' if arguments.tiny else time.strftime('%Y-%m-%dT%H-%M')}.json")
        path = path if arguments.tiny else RESULTS / path
    path.parent.mkdir(parents=True, exist_ok=True)
    device = arguments.device or ("cpu" if arguments.tiny else "cuda:0")
    results = Results(path, arguments.tiny, arguments.resume is not None)
    names = [name for name in SECTIONS if name in arguments.only and not results.done(name)]
    if device != "cpu":
        load_libraries()
    with contextlib.ExitStack() as stack:
        folder = arguments.work
        if folder is None:
            above = None if arguments.tiny else place()
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vcs-gpu-", dir=above)))
        folder.mkdir(parents=True, exist_ok=True)
        if names:
            work = Work(folder, arguments.tiny, device)
            stack.callback(work.stop)
            work.ahead = "precisions" in names
            measure(work, results, names, arguments.minutes)
    print(path)


if __name__ == "__main__":
    main()
