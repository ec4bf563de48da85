"""Checks of TensorRT engines: whether they can be built, and results and speed beside CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcs_export.checks.quantization_error import demo_texts
from vcs_export.checks.tensorrt_engines import graph_problem, largest_batches, needs_of, part_of
from vcs_export.checks.verify import TOLERANCES, Check
from vcs_runtime.bundle.manifest import PARTS, LearnedSegmenterSpec
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.inference.device import Device, choose_device, cuda_of
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.tensorrt import choose_for, fitting, record_speed
from vcs_runtime.segmentation.boundary_model import BoundaryModel

Run = Callable[[], Iterable[NDArray[Any]]]
_ROUNDS = 5
# What a job of VCS has, in words of the demo's texts: documents of about 600 tokens, chunks of about 26.
_DOCUMENTS, _DOCUMENT_WORDS = 27, 450
_CHUNKS, _CHUNK_WORDS = 630, 20


def check_graphs(bundle: Bundle) -> Iterator[Check]:
    """Check, without a GPU, that engines can be built of a bundle's graphs, and calculate what that needs."""
    parts = [part for part in PARTS if bundle.part(part)]
    problems = {part: graph_problem(bundle, part) for part in parts}
    for part, problem in problems.items():
        yield Check(f"{part}: graph", not problem, problem or "its precision and layout go into an engine")
    if not any(problems.values()):
        yield Check("calculated needs", True, str(needs_of(bundle, largest_batches(bundle, parts))))


def check_engines(bundle: Bundle, device: str = "tensorrt:0") -> Iterator[Check]:
    """Check that the engines of a bundle fit this machine, and that they compute what CUDA does.

    The speed is recorded on this machine: "auto" prefers engines only where they were faster than CUDA.
    """
    index = choose_device(device).index
    for part in PARTS:
        if bundle.part(part):
            engines, reason = fitting(bundle, part, index)
            models = ", ".join(engine.model for engine in engines)
            yield Check(f"{part}: engine", bool(engines), f"{models} fits" if engines else reason)
            if engines:
                yield from _compare(bundle, part, device)


def job_texts() -> list[str]:
    """Return texts as long and as many as those of a job: documents, and many chunks; no two are equal."""
    words = " ".join(demo_texts()).split()

    def text(number: int, length: int) -> str:
        start = 7 * number  # a number ends each text: the demo's texts repeat each other
        return " ".join([*(words[(start + i) % len(words)] for i in range(length - 1)), str(number)])

    documents = [text(number, _DOCUMENT_WORDS) for number in range(_DOCUMENTS)]
    return documents + [text(number, _CHUNK_WORDS) for number in range(_CHUNKS)]


def _compare(bundle: Bundle, part: str, device: str) -> Iterator[Check]:
    """Judge the results, measure the speed, and record it if the results are right."""
    chosen = choose_for(bundle, part, device)
    with ExitStack() as stack:
        ours, cuda = (_opened(bundle, part, each, stack) for each in (chosen, cuda_of(chosen)))
        difference = max(float(np.abs(a - b).max()) for a, b in zip(ours(), cuda(), strict=True))
        tolerance = TOLERANCES.get(part_of(bundle, part).precision, 1e-3)
        same = difference <= tolerance
        detail = f"differs from CUDA by {difference:.1e} at most, {tolerance:.0e} allowed"
        yield Check(f"{part}: parity", same, detail)
        times_cuda = _times_cuda(ours, cuda)
    record_speed(bundle, chosen.engines, times_cuda if same else None)
    yield Check(f"{part}: speed", True, f"{times_cuda:.2f} times that of CUDA")


def _opened(bundle: Bundle, part: str, device: Device, stack: ExitStack) -> Run:
    """Open a part on a device until the stack ends, and return what runs it on texts of a job."""
    if part == "embedder":
        embedder = stack.enter_context(Embedder(bundle, device))
        texts = job_texts()
        return lambda: embedder.embed(texts)
    spec = part_of(bundle, part)
    assert isinstance(spec, LearnedSegmenterSpec)
    model = BoundaryModel(bundle, spec, device)
    stack.callback(model.close)
    return lambda: model.probabilities(demo_texts() * 4)


def _times_cuda(ours: Run, cuda: Run) -> float:
    """Measure the speed, divided by that of CUDA, in turns. Both have run before."""
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(_ROUNDS):
        for side, run in zip(seconds, (ours, cuda), strict=True):
            started = time.perf_counter()
            run()
            side.append(time.perf_counter() - started)
    return float(np.median(seconds[1]) / np.median(seconds[0]))
