"""Measure vcs-runtime on a GPU, in ten minutes and one process, with or without a network.

    python benchmarks/gpu/measure.py [--json RESULTS.json] [--only SECTION ...] [--minutes 9.5] [--work DIR]
    python benchmarks/gpu/measure.py --resume RESULTS.json      # the sections that are not done yet
    python benchmarks/gpu/measure.py --tiny [--device cuda:0]   # tests all sections with a small model, on CPU or GPU

The script needs `vcs-runtime[gpu,export]`, and PyTorch for comparisons. Weights are made up, in
NV-Embed-v2's published size (15.7 GB, with bundles 24 GB, in /dev/shm if there is room). Nothing is
downloaded. The sections, with the minutes of each (the GPU's clock, power and temperature are also
recorded before and after each section):

    machine      .8  GPU, libraries, speed of matrix products alone, also over ten seconds, and of copies; makes weights
    default      .7  the default model and its learned segmenter, compared with float32 on the CPU: vectors,
                     probabilities, splits and scores; texts alone and in a batch (`--pairs FILE` uses real texts)
    jobs         .8  the default model, alone and after SaT of 12 layers: one process, and four processes
    correctness  .5  64 texts for each graph (first layers), compared with the original in PyTorch, float32; without
                     PyTorch compared with the first graph, text by text
    packed      1.3  the graph of every provider: 27 texts of 600 tokens, 630 of 26, a block of 40 pairs, one pair:
                     tokens per second, and the time of each kind of kernel
    varlen      1.2  the same for the graph for CUDA
    residual     .1  sums by the fused kernel and by Cast and Add
    score       1.2  pairs per second of a job, busy share of the GPU, p50 and p99 of one pair; references cached
    precisions  1.2  bf16 and int8, compared with fp16 (first layers): speed, and error with planted outliers
    peers        .8  the original in PyTorch without padding, compiled and not compiled
    training     .4  steps of a small training, without and with the metric at the same time
    memory       .9  without and with a limit; released and opened again, also while PyTorch holds 60 GB
    batches      .3  a text twice, alone, and among others

Each row is written to the JSON file immediately, so a stopped run loses nothing. A section that
fails or lacks something becomes a row that reports this, and the other sections run. The next
section may use the remaining time of a section. With `--keep`, the rows also go into
results/figures, from which `tables.py` makes a table of the manual.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from speed import (
    correctness,
    jobs,
    machine,
    packed,
    peers,
    precisions,
    profiled,
    rate_of,
    residual,
    varlen,
)
from weights import english, pairs
from work import Row, Unmeasured, Work, error_of, free_torch, need

from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import choose_device, import_onnxruntime


def score(work: Work) -> Iterator[Row]:
    """Pairs a second of a job, the GPU's busy share, p50 and p99 of a pair; references new, cached."""
    from vcs_runtime import Scorer

    count = 6 if work.tiny else 400
    bundle = work.bundle()
    started = time.perf_counter()
    work.wait_for("alignment")
    waited = time.perf_counter() - started
    yield {"what": "waited until the alignment was compiled", "seconds": waited}
    with Scorer.open(bundle, work.device, cache_mb=0) as scorer:
        scorer.score_many(pairs(work.size, 2 if work.tiny else 40, 40, seed=1))  # warms up
        rate = rate_of(scorer, pairs(work.size, count, count, seed=2))
        yield {"what": f"{count} pairs, every reference new", "pairs/s": rate}
        if not work.late:
            yield profiled(work, scorer, pairs(work.size, count // 2, count // 2, seed=3))
        yield _single(work, "every reference new", scorer, pairs(work.size, 102, 102, seed=4))
    with Scorer.open(bundle, work.device) as scorer:
        made = pairs(work.size, count, 4, seed=5)
        scorer.score_many(made[:4])
        rate = rate_of(scorer, made[4:])
        yield {"what": f"{count} pairs, references cached", "pairs/s": rate}
        reference = made[0][0]
        sides = [(reference, generated) for _, generated in pairs(work.size, 102, 102, seed=6)]
        yield _single(work, "reference cached", scorer, sides)


def _single(work: Work, what: str, scorer: Any, made: list[tuple[str, str]]) -> Row:
    seconds = []
    for reference, generated in made[:6] if work.tiny else made:
        started = time.perf_counter()
        scorer.score(reference, generated)
        seconds.append(time.perf_counter() - started)
        if work.late and len(seconds) > 12:
            break
    p50, p99 = np.quantile(seconds[2:], [0.5, 0.99]) * 1e3  # the first two warm up
    row: Row = {"what": f"one pair, {what}", "p50 ms": float(p50), "p99 ms": float(p99)}
    return {**row, "pairs": len(seconds) - 2}


def memory(work: Work) -> Iterator[Row]:
    """GPU memory without and with a limit; release and return, also beside a PyTorch that holds 60
    GB."""
    if not work.on_gpu:
        raise Unmeasured("no GPU")
    major, index = nvidia.cuda_major(import_onnxruntime()), choose_device(work.device).index
    bundle = work.bundle(shallow=True)
    files = sum(entry.size for entry in bundle.manifest.files)
    rng = random.Random(0)
    batches = []
    for seed in range(60):
        lengths = [rng.randint(10, 600) for _ in range(rng.randint(1, 60))]
        batches.append(work.of_lengths(lengths, seed))

    def used() -> int:
        free = nvidia.free_memory(index, major) or 0
        return nvidia.gpu(index).memory - free

    for limit in (None, files / 1e9 + 6):
        before = used()
        with work.embedder(bundle, gpu_memory_gb=limit) as embedder:
            embedder.embed(["a"])
            loaded, peak = used() - before, 0
            started = time.perf_counter()
            for texts in batches:
                embedder.embed(texts)
                peak = max(peak, used() - before)
            seconds = time.perf_counter() - started
            tokens = embedder._budget.tokens
            embedder.release()
            released = used() - before
        yield {
            "what": "no limit" if limit is None else f"limit {limit:.1f} GB",
            "files GB": files / 1e9,
            "loaded GB": loaded / 1e9,
            "peak GB": peak / 1e9,
            "tokens of a batch at the end": tokens,
            "released GB": released / 1e9,
            "batches/s": len(batches) / seconds,
        }
    work.forget(bundle)
    block: Any = None
    for held in (0, 60):
        what = f"release and reopening of the whole model, {held} GB held by PyTorch"
        try:
            if held:
                need("torch", "PyTorch")
                import torch

                block = torch.empty(held * 10**9, dtype=torch.uint8, device=f"cuda:{index}")
            with work.embedder(work.bundle()) as embedder:
                embedder.embed(work.texts("one pair"))
                taken = used()
                started = time.perf_counter()
                embedder.release()
                released = time.perf_counter() - started
                given = taken - used()
                started = time.perf_counter()
                embedder.embed(work.texts("one pair", 1))
                returned = time.perf_counter() - started
            row: Row = {
                "release s": released,
                "freed GB": given / 1e9,
                "reopening and a pair s": returned,
            }
            yield {"what": what, **row}
        except (Unmeasured, RuntimeError, AssertionError) as why:
            # PyTorch finds no GPU, or not enough GPU memory.
            yield {"what": what, "not measured": str(why)[:500]}
    del block
    free_torch()


def training(work: Work) -> Iterator[Row]:
    """Steps of a small training without and with the default model's metric beside them; the
    current GPU stays."""
    need("torch", "PyTorch")
    import torch

    from vcs_runtime import ScorerConfig
    from vcs_runtime.training import TextMetric

    cuda = work.on_gpu and torch.cuda.is_available()
    device, width = work.torch_device if cuda else "cpu", 64 if work.tiny else 4096
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, device=device) for _ in range(8)))
    optimizer = torch.optim.AdamW(model.parameters())
    count = 4 if work.tiny else 128
    made = pairs(work.size, count, count, seed=7, of=english())

    def step() -> float:
        started = time.perf_counter()
        model(torch.randn(width, width, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    current = torch.cuda.current_device() if cuda else None
    for _ in range(3):  # warm up
        step()
    alone = np.median([step() for _ in range(20)])
    config = ScorerConfig(work.default(), work.device, gpu_memory_gb=8 if cuda else None)
    with contextlib.closing(TextMetric(config, asynchronous=True)) as metric:
        metric.update([made[0][1]], [made[0][0]])  # opens the models
        metric.compute()
        metric.reset()
        started = time.perf_counter()
        metric.update([generated for _, generated in made], [reference for reference, _ in made])
        with ThreadPoolExecutor(1) as waiting:
            scores = waiting.submit(metric.compute)
            seconds_beside = [step()]
            while not scores.done():
                seconds_beside.append(step())
        beside = np.median(seconds_beside)
        seconds = time.perf_counter() - started
    yield {
        "what": f"{len(made)} pairs beside a training",
        "step alone ms": alone * 1e3,
        "step with scoring ms": beside * 1e3,
        "pairs/s": len(made) / seconds,
        "unscorable": scores.result()["unscorable"],
        "current GPU": f"{current} before, {torch.cuda.current_device() if cuda else None} after",
    }


_PROVED = (
    "a",
    "A dog runs into the garden.",
    (
        "The man in the white shirt drives a car through the rain while he talks to someone on the"
        " back seat."
    ),
    "The camera shows a street at night. " * 60,  # beyond the window
    "那个男人打开门, 狗跑进了花园。",
    "Then, at 12:30, it's over; she said: no!",
    "door door door door door door door door",
    "A dog runs into the garden.",
)


def default(work: Work) -> Iterator[Row]:
    """The default model and its learned segmenter on this device, beside float32 on the CPU."""
    from vcs_runtime import Embedder, Scorer, Segmenter

    bundle = work.default()
    made = work.real_pairs() or pairs(work.size, 6 if work.tiny else 100, 6, seed=9, of=english())
    documents = list(dict.fromkeys(text for pair in made for text in pair))
    texts = [*_PROVED, *documents[:100]]
    with Embedder.open(bundle, "cpu") as embedder:
        exact = embedder.embed(texts)
    unpunctuated = [" ".join(text.lower().split()).replace(".", "") for text in documents[:60]]
    with Segmenter.open(bundle, "cpu", use="learned") as segmenter:
        likely, cuts = segmenter.boundary_probabilities(unpunctuated), segmenter.split(unpunctuated)
    with Scorer.open(bundle, "cpu", cache_mb=0) as scorer:
        expected = [result.vcs for result in scorer.score_many(made)]

    ways: list[tuple[str, dict[str, Any]]] = [
        (work.device, {}),
        (work.device, {"batch_invariant": True}),
    ]
    if work.on_gpu:
        ways.append((f"{work.device}:fp32", {}))
    for device, options in ways:
        name = f"{device}{', batch_invariant' if options else ''}"
        with Embedder.open(bundle, device, **options) as embedder:
            together = embedder.embed(texts)
            alone = np.concatenate([embedder.embed([text]) for text in texts])
            again = embedder.embed(texts)
        yield {
            "what": f"vectors, {name}",
            **error_of(together, exact),
            "difference, alone and in a batch": float(np.abs(together - alone).max()),
            "equal bits, alone and in a batch": int(np.all(together == alone, axis=1).sum()),
            "equal bits, repeated": int(np.all(together == again, axis=1).sum()),
        }
        with Segmenter.open(bundle, device, use="learned", **options) as segmenter:
            probabilities = segmenter.boundary_probabilities(unpunctuated)
            far = max(
                float(np.abs(a - b).max()) for a, b in zip(probabilities, likely, strict=True)
            )
            same = sum(a == b for a, b in zip(segmenter.split(unpunctuated), cuts, strict=True))
        yield {
            "what": f"learned segmenter, {name}",
            "largest difference": far,
            "texts split the same way": same,
            "texts": len(unpunctuated),
        }
        with Scorer.open(bundle, device, cache_mb=0, **options) as scorer:
            scores = [result.vcs for result in scorer.score_many(made)]
        differences = np.abs(np.array(scores) - np.array(expected))
        flips = (np.array(scores) == 0) != (np.array(expected) == 0)
        yield {
            "what": f"VCS, {name}",
            "pairs": len(made),
            "mean difference": float(differences.mean()),
            "largest difference": float(differences.max()),
            "equal": int((differences == 0).sum()),
            "0 on one device only": int(flips.sum()),
        }


def batches(work: Work) -> Iterator[Row]:
    """Vectors of the same texts twice, and of texts alone and among others, without and with
    `batch_invariant`."""
    texts = work.some()
    bundle = work.bundle(shallow=True)
    for name, graph in work.graphs(bundle).items():
        for options in ({}, {"batch_invariant": True}):
            what = f"{name}, alone and among others{', batch_invariant' if options else ''}"
            with work.embedder(graph, **options) as embedder:
                together, again = embedder.embed(texts), embedder.embed(texts)
                alone = np.concatenate([embedder.embed([text]) for text in texts])
                seconds = work.seconds(
                    lambda i, embedder=embedder: embedder.embed(work.texts("block", i)), 2
                )
            tokens = sum(map(len, work.ids(work.texts("block", 1))))
            yield {
                "what": what,
                "largest difference": float(np.abs(together - alone).max()),
                "texts": len(texts),
                "equal bits, repeated": int(np.all(together == again, axis=1).sum()),
                "equal to the bit": int(np.all(together == alone, axis=1).sum()),
                "tokens/s": tokens / seconds,
            }
    work.forget(bundle)


RESULTS = Path(__file__).resolve().parents[1] / "results"
MINUTES = 9.5
_DISK = 24e9
SECTIONS: dict[str, tuple[Callable[[Work], Iterator[Row]], float]] = {
    "machine": (machine, 0.8),
    "default": (default, 0.7),
    "jobs": (jobs, 0.8),
    "correctness": (correctness, 0.5),
    "varlen": (varlen, 1.2),
    "score": (score, 1.2),
    "memory": (memory, 0.9),
    "batches": (batches, 0.3),
    "training": (training, 0.4),
    "peers": (peers, 0.8),
    "packed": (packed, 1.3),
    "residual": (residual, 0.1),
    "precisions": (precisions, 1.2),
}
"""Sections in their order, with the minutes of each."""


def figures(row: Row) -> list[str]:
    """The figures of a row as text."""
    return [
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
        if key not in ("section", "what", "costliest")
    ]


# Sections with the tokens per second of one model, which become one table.
SPEED = ("varlen", "packed", "peers")
SHOWN = ("default", "jobs", "score", "memory", "training")


def keep_rows(rows: list[Row], measured: Row) -> Path:
    """Keep what the manual shows of the rows, in a folder that is named after the GPU."""
    from records import keep

    versions = {row["what"]: row["version"] for row in rows if "version" in row}
    gpu = next(row["name"] for row in rows if row["what"] == "GPU")
    source = (
        f"One {gpu}, measured on {measured['date']} at {measured['revision']}; onnxruntime-gpu"
        f" {versions['onnxruntime']}, PyTorch {versions['torch']}. Weights are made up, except the"
        " default model's."
    )
    place = gpu.lower().replace(" ", "-")

    sides: dict[str, dict[str, str]] = {}
    for row in rows:
        side, _, shape = row["what"].rpartition(", ")
        if row["section"] in SPEED and "tokens/s" in row:
            sides.setdefault(side, {})[shape] = f"{row['tokens/s'] / 1e3:.1f}k"
    speed = []
    for side, cells in sides.items():
        row = {"head": "tokens a second", "workload": side, "cells": cells}
        speed.append({**measured, **row})
    keep("gpu_speed", speed, place=place, source=source)

    shown = []
    for row in rows:
        if row["section"] not in SHOWN or "version" in row or row["what"].startswith("GPU"):
            continue
        if row["what"].endswith(
            (": kernels", ", block", ", 630x26", "bundle opened", "compiled", "written")
        ):
            continue
        text = "; ".join(figures(row)).replace("|", "/").replace("\n", " ")
        cells = {"section": row["section"], "what": row["what"], "figures": text}
        workload = f"{row['section']}: {row['what']}"
        shown.append({**measured, "head": None, "workload": workload, "cells": cells})
    return keep("gpu", shown, place=place, source=source)


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
        print(f"{section:11} {row['what']:44} {'; '.join(figures(row))}", flush=True)

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
        # A late section still gets a third of its time.
        work.until = max(planned, started + share * weight / 3)
        results.start(name)
        state = "done"
        if work.on_gpu:
            results.add(name, {"what": "GPU before", **work.state()})
        try:
            for row in section(work):
                results.add(name, row)
        except Unmeasured as why:
            results.add(name, {"what": "all of it", "not measured": str(why)})
        except Exception as failure:  # the other sections say something all the same
            state = "failed"
            where = traceback.extract_tb(failure.__traceback__)[-1]
            words = f"{type(failure).__name__}: {failure}"[:1500]
            at = f"{Path(where.filename).name}:{where.lineno}"
            results.add(name, {"what": "all of it", "failed": words, "at": at})
        if work.on_gpu:
            results.add(name, {"what": "GPU after", **work.state()})
        results.end(name, state, time.monotonic() - started)


def place() -> Path:
    """Return a folder with room for the weights: in memory, or else the temporary folder."""
    for folder in (Path("/dev/shm"), Path(tempfile.gettempdir())):
        if folder.is_dir() and shutil.disk_usage(folder).free > _DISK:
            return folder
    sys.exit(f"neither /dev/shm nor {tempfile.gettempdir()} has {_DISK / 1e9:.0f} GB: --work DIR")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a small model, on the CPU unless --device differs"
    )
    parser.add_argument("--device", help="cuda:N, or cpu for a small model [default: cuda:0]")
    parser.add_argument("--work", type=Path, help="folder for weights and bundles; kept if named")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="for all sections together [9.5]"
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument(
        "--json", type=Path, help="file of the results [benchmarks/results/gpu-TIME.json]"
    )
    parser.add_argument("--resume", type=Path, help="file of results to continue")
    parser.add_argument("--pairs", type=Path, help="JSONL of real pairs for the section default")
    parser.add_argument(
        "--keep", action="store_true", help="write the rows into results/figures, too"
    )
    arguments = parser.parse_args()
    if arguments.tiny and arguments.keep:
        parser.error("figures of a small model mean nothing: leave out --keep")
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
    with contextlib.ExitStack() as stack:
        folder = arguments.work
        if folder is None:
            above = None if arguments.tiny else place()
            temporary = tempfile.TemporaryDirectory(prefix="vcs-gpu-", dir=above)
            folder = Path(stack.enter_context(temporary))
        folder.mkdir(parents=True, exist_ok=True)
        if names:
            work = Work(folder, arguments.tiny, device, arguments.pairs)
            stack.callback(work.stop)
            work.ahead = "precisions" in names
            measure(work, results, names, arguments.minutes)
    print(path)
    if arguments.keep:
        sys.path.append(str(RESULTS.parent))
        from records import revision

        began = min(section["started"] for section in results.content["sections"].values())
        run = {"date": began[:10], "revision": revision(), "versions": {}}
        print(keep_rows(results.content["rows"], run))


if __name__ == "__main__":
    main()
