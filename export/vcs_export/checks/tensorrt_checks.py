"""Checks of TensorRT engines: whether TensorRT takes the graphs, and results and speed beside CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from vcs_export.checks.quantization_error import demo_texts
from vcs_export.checks.tensorrt_engines import (
    Log,
    build_engines,
    graph_problems,
    largest_batches,
    part_of,
)
from vcs_export.checks.tensorrt_needs import needs_of
from vcs_export.checks.verify import TOLERANCES, Check
from vcs_runtime.bundle.manifest import PARTS, LearnedSegmenterSpec
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.inference.device import Device, choose_device, cuda_of
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.engine_marks import record_speed
from vcs_runtime.inference.tensorrt import choose_for, fitting
from vcs_runtime.segmentation.boundary_model import BoundaryModel

Run = Callable[[], object]
_ROUNDS = 5
# What a job of VCS has, in words of the demo's texts: documents of about 600 tokens, chunks of about 26.
_DOCUMENTS, _DOCUMENT_WORDS = 27, 450
_CHUNKS, _CHUNK_WORDS = 630, 20


def check_engines(
    bundle: Bundle,
    device: str = "tensorrt:0",
    *,
    static: bool = False,
    ignore_needs: bool = False,
    log: Log = lambda line: None,
) -> Iterator[Check]:
    """Check that TensorRT takes the graphs of a bundle, and that its engines compute what CUDA does.

    Engines that are missing, or do not fit this machine, are built. The speed is recorded on this machine:
    "auto" prefers engines only where they were faster than CUDA.
    """
    parts = [part for part in PARTS if bundle.part(part)]
    taken = True
    for part in parts:
        problems = graph_problems(bundle, part)
        taken &= not problems
        yield Check(f"{part}: operators", not problems, "; ".join(problems) or "all known to TensorRT 10")
        if problems and not static:
            return
    if static:
        if taken:
            yield Check("calculated needs", True, str(needs_of(bundle, largest_batches(bundle, parts))))
        return
    index = choose_device(device).index
    missing = [part for part in parts if not fitting(bundle, part, index)[0]]
    if missing:
        started = time.perf_counter()
        build_engines(bundle, device, parts=missing, ignore_needs=ignore_needs, log=log)
        yield Check("built", True, f"{', '.join(missing)} in {time.perf_counter() - started:.0f} s")
        bundle = open_bundle(bundle.root)
    for part in parts:
        yield from (_compare_embedder if part == "embedder" else _compare_segmenter)(bundle, device)


def job_texts() -> list[str]:
    """Return texts as long and as many as those of a job: documents, and many chunks; no two are equal."""
    words = " ".join(demo_texts()).split()

    def text(number: int, length: int) -> str:
        start = 7 * number  # a number ends each text: the demo's texts repeat each other
        return " ".join([*(words[(start + i) % len(words)] for i in range(length - 1)), str(number)])

    documents = [text(number, _DOCUMENT_WORDS) for number in range(_DOCUMENTS)]
    return documents + [text(number, _CHUNK_WORDS) for number in range(_CHUNKS)]


def _compare_embedder(bundle: Bundle, device: str) -> Iterator[Check]:
    chosen = choose_for(bundle, "embedder", device)
    texts = job_texts()
    with Embedder(bundle, chosen) as ours, Embedder(bundle, cuda_of(chosen)) as cuda:
        difference = float(np.abs(ours.embed(texts) - cuda.embed(texts)).max())
        runs = (lambda: ours.embed(texts), lambda: cuda.embed(texts))
        yield from _compare(bundle, chosen, "embedder", difference, runs)


def _compare_segmenter(bundle: Bundle, device: str) -> Iterator[Check]:
    chosen = choose_for(bundle, "segmenter", device)
    spec = part_of(bundle, "segmenter")
    assert isinstance(spec, LearnedSegmenterSpec)
    texts = demo_texts() * 4
    ours, cuda = (BoundaryModel(bundle, spec, device) for device in (chosen, cuda_of(chosen)))
    pairs = zip(ours.probabilities(texts), cuda.probabilities(texts), strict=True)
    difference = max(float(np.abs(a - b).max()) for a, b in pairs)
    runs = (lambda: ours.probabilities(texts), lambda: cuda.probabilities(texts))
    yield from _compare(bundle, chosen, "segmenter", difference, runs)
    ours.close()
    cuda.close()


def _compare(
    bundle: Bundle, chosen: Device, part: str, difference: float, runs: tuple[Run, Run]
) -> Iterator[Check]:
    """Judge the results, measure the speed, and record it if the results are right."""
    tolerance = TOLERANCES.get(part_of(bundle, part).precision, 1e-3)
    same = difference <= tolerance
    detail = f"differs from CUDA by {difference:.1e} at most, {tolerance:.0e} allowed"
    yield Check(f"{part}: parity", same, detail)
    times_cuda = _times_cuda(*runs)
    record_speed(bundle, chosen.engines, times_cuda if same else None)
    yield Check(f"{part}: speed", True, f"{times_cuda:.2f} times that of CUDA")


def _times_cuda(ours: Run, cuda: Run) -> float:
    """Measure the speed, divided by that of CUDA, in turns. Both have run before."""
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(_ROUNDS):
        for side, run in zip(seconds, (ours, cuda), strict=True):
            started = time.perf_counter()
            run()
            side.append(time.perf_counter() - started)
    return float(np.median(seconds[1]) / np.median(seconds[0]))
