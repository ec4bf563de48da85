"""How busy a job keeps a GPU that computes at a given rate: a simulation, without a GPU.

    python benchmarks/gpu/pipeline.py [--rates 38000,70000] [--gpus 1] [--pairs 400] [--file PAIRS] [--rounds 3]

The job is that of `vcs-runtime score`: a file is read, its texts are split by rules and tokenised (with the embedded
default's tokenizer), embedded, aligned and written. Everything is real except the run of the model, which sleeps as
long as a GPU would compute: tokens / rate, at least 6 ms. It returns vectors of `--width` numbers that depend on the
token ids alone. So the digest of the scores shows whether two versions of the job compute the same.

`--file` is a file of pairs, such as CLIP-CC's from `benchmarks/pairs.py`. Without it the texts are random words:
two of 450 words a pair, in sentences of 10 to 30 words. Every run of a rate is repeated, because other work on the
machine disturbs it. `load` is the number of processes that wanted to run in the last minute. The last lines say how
much CPU time each stage takes in its own thread: it must fit into the time of the GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vcs_runtime import Options, Scorer
from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.inference import embedder, tokenizer, vector_store
from vcs_runtime.inference.device import Device
from vcs_runtime.jobs import output, run
from vcs_runtime.scoring import block_scores, preparation
from vcs_runtime.segmentation.segmenter import Segmenter

LEAST_SECONDS = 0.006  # of a run, however few its tokens
LAYOUT = "packed"
POOL = 4096


class SleepingGpu:
    """Takes the place of the session: it sleeps as long as a GPU would compute."""

    inputs = dict.fromkeys(EMBEDDER_INPUTS[LAYOUT], "tensor(int64)")

    def __init__(self, rate: float, vectors: np.ndarray) -> None:
        self.rate = rate
        self.forget()
        self._vectors = vectors
        self._busy = threading.Lock()

    def forget(self) -> None:
        self.runs: list[tuple[int, float, float]] = []  # tokens, begin, end

    def run(self, inputs: dict[str, Any]) -> Any:
        ids, lengths = inputs["input_ids"], inputs["lengths"]
        seconds = max(len(ids) / self.rate, LEAST_SECONDS)
        with self._busy:
            begin = time.perf_counter()
            time.sleep(seconds)
            self.runs.append((len(ids), begin, begin + seconds))
        first = np.cumsum(lengths) - lengths
        places = np.arange(len(ids)) - np.repeat(first, lengths) + 1
        return self._vectors[np.add.reduceat(ids * places, first) % POOL]

    def close(self) -> None:
        """Nothing is open."""


class Stages:
    """Seconds of the threads' CPU time, and of wall time, by stage."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, name: str, stage: str) -> None:
        real = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            cpu, wall = time.thread_time(), time.perf_counter()
            try:
                return real(*arguments, **options)
            finally:
                self.cpu[stage] += time.thread_time() - cpu
                self.wall[stage] += time.perf_counter() - wall

        setattr(owner, name, timed)


def write_bundle(folder: Path, width: int) -> Bundle:
    """The embedded default, described as a packed model with vectors of `width` numbers and long windows."""
    default = open_bundle("default")
    shutil.copytree(default.root, folder)
    manifest = json.loads((folder / "bundle.json").read_text("utf-8"))
    manifest["embedder"] |= {"dimension": width, "layout": LAYOUT, "max_tokens": 32_768}
    (folder / "bundle.json").write_text(json.dumps(manifest), "utf-8")
    return open_bundle(folder)


def texts(draw: random.Random, bundle: Bundle) -> Iterator[str]:
    """Texts of 450 words of the tokenizer's vocabulary, in sentences of 10 to 30."""
    vocabulary = json.loads((bundle.root / "embedder/tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 1]
    while True:
        sentences, left = [], 450
        while left > 0:
            count = draw.randint(10, 30)
            sentences.append(" ".join(draw.choices(words, k=count)).capitalize() + ".")
            left -= count
        yield " ".join(sentences)


def write_pairs(path: Path, source: Path | None, count: int, bundle: Bundle) -> int:
    """The first `count` pairs of a file, or random ones."""
    if source:
        lines = source.read_text("utf-8").splitlines()[:count]
    else:
        made = texts(random.Random(0), bundle)
        lines = [
            json.dumps({"id": i, "reference": next(made), "generated": next(made)}) for i in range(count)
        ]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return len(lines)


def open_scorer(bundle: Bundle, sleeping: list[SleepingGpu]) -> Scorer:
    """A scorer whose embedder runs on the sleeping GPUs."""
    left = iter(sleeping)
    embedder.open_part = lambda *arguments, **options: next(left)
    device = Device("ort-cuda", "CUDAExecutionProvider", "simulated")
    models = embedder.Embedder(bundle, device, None, [device] * (len(sleeping) - 1))
    store = vector_store.VectorStore(models, None, 256 << 20)
    return Scorer(models, Segmenter.open(bundle, "cpu", use="rules"), store, 256, 1.0)


def job(opened: Scorer, pairs: Path, scores: Path) -> str:
    """A digest of the job's scores."""
    run.score_file(opened, pairs, output.JobFiles(scores, overwrite=True, progress=False), Options())
    return hashlib.sha256(scores.read_bytes()).hexdigest()[:12]


def parsed(call: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [call(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=parsed(float), default=[38_000.0, 70_000.0], help="tokens a second")
    parser.add_argument("--gpus", type=parsed(int), default=[1], help="numbers of GPUs")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--file", type=Path, help="a file of pairs, in place of random words")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=4096, help="numbers of a vector")
    arguments = parser.parse_args()
    draw = np.random.default_rng(0).standard_normal((POOL, arguments.width)).astype(np.float32)
    vectors = draw / np.linalg.norm(draw, axis=1, keepdims=True)
    stages = Stages()
    stages.watch(preparation.Preparation, "_prepare", "read and split")
    stages.watch(tokenizer.TextTokenizer, "sequences", "tokenise")
    stages.watch(block_scores, "_compare", "cosines")
    stages.watch(block_scores, "score_batch", "alignment")
    stages.watch(output.OutputFile, "append", "write")
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = write_bundle(folder / "bundle", arguments.width)
        write_pairs(folder / "warm.jsonl", None, 2, bundle)
        count = write_pairs(folder / "pairs.jsonl", arguments.file, arguments.pairs, bundle)
        for gpus in arguments.gpus:
            for rate in arguments.rates:
                for _ in range(arguments.rounds):
                    sleeping = [SleepingGpu(rate, vectors) for _ in range(gpus)]
                    with open_scorer(bundle, sleeping) as opened:
                        job(opened, folder / "warm.jsonl", folder / "warm.out")
                        for gpu in sleeping:
                            gpu.forget()
                        stages.cpu.clear()
                        stages.wall.clear()
                        begun, processor = time.perf_counter(), time.process_time()
                        digest = job(opened, folder / "pairs.jsonl", folder / "scores.jsonl")
                        seconds = time.perf_counter() - begun
                        processor = time.process_time() - processor
                    runs = [done for gpu in sleeping for done in gpu.runs]
                    busy = sum(end - begin for _, begin, end in runs) / seconds / gpus
                    first, last = (
                        min(run[1] for run in runs) - begun,
                        seconds - (max(run[2] for run in runs) - begun),
                    )
                    inside = busy * seconds / (seconds - first - last)
                    rows.append(
                        (
                            f"{gpus}", f"{rate:,.0f}", f"{busy:.1%}", f"{inside:.1%}", f"{first:.2f}", f"{last:.2f}",
                            f"{count / seconds:.1f}", f"{len(runs)}", f"{sum(run[0] for run in runs) / len(runs):,.0f}",
                            digest,
                            f"{os.getloadavg()[0]:.1f}",
                        )
                    )  # fmt: skip
    table = Table(
        "GPUs",
        "tokens/s",
        "busy",
        "of it, between",
        "before, s",
        "after, s",
        "pairs/s",
        "runs",
        "tokens a run",
        "scores",
        "load",
        box=None,
    )
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)
    print(f"\nthe processor's part in the last run: {1e3 * processor / count:.1f} ms of one core a pair")
    print("\nlast run, ms a pair:    CPU time of the thread    wall time")
    for stage in stages.cpu:
        print(f"{stage:22} {1e3 * stages.cpu[stage] / count:14.2f} {1e3 * stages.wall[stage] / count:17.2f}")


if __name__ == "__main__":
    main()
