"""TensorRT engines of a bundle: building them into the bundle, and comparing them with CUDA.

TensorRT builds each engine (`tensorrt_builder`) from a graph in half precision (`graph.half`).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace
from numpy.typing import NDArray

from vcs_export.checks.quantization_error import demo_texts
from vcs_export.checks.tensorrt_builder import build_plan, import_tensorrt, write_context
from vcs_export.checks.verify import TOLERANCES, Check
from vcs_export.errors import ExportError
from vcs_export.graph.half import write_half
from vcs_runtime.bundle.integrity import ends_of, sha256_of
from vcs_runtime.bundle.manifest import (
    MANIFEST,
    PARTS,
    EmbedderSpec,
    EngineSpec,
    FileEntry,
    LearnedSegmenterSpec,
    Part,
)
from vcs_runtime.bundle.onnx_check import check_engine_graph
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.bundle.paths import home
from vcs_runtime.errors import BundleError, DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import Device, choose_device, cuda_of, import_onnxruntime
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.onnx_session import open_session
from vcs_runtime.inference.tensorrt import choose_for, fitting, record_speed, trust
from vcs_runtime.segmentation.boundary_model import BoundaryModel
from vcs_runtime.util.atomic import write_whole

# Tokens in a row of an embedder's engines beside that for the longest input. A job of VCS has a few documents
# of hundreds of tokens, and thousands of chunks of about 26, which would run in as few rows as documents.
_WIDTHS = (64, 1024)
_PLACES = 32768  # rows x tokens: the largest batch that the runtime makes for an engine
_STEP = 16  # the runtime pads windows to a multiple of it
_FOLDER = "engines"

Log = Callable[[str], None]


def build_engines(bundle: Bundle, device: str = "tensorrt:0", log: Log = lambda line: None) -> list[Path]:
    """Build TensorRT engines of the bundle's encoders for a GPU, and list them in its `bundle.json`.

    Engines for this kind of GPU are replaced, whatever versions built them. After an error (DeviceError,
    ExportError) the bundle is as it was.
    """
    chosen = choose_device(device)
    if chosen.provider_name != "ort-tensorrt":
        raise DeviceError(f"{device}: engines are built on a GPU named as tensorrt:N")
    if not os.access(bundle.root, os.W_OK):
        raise ExportError(f"{bundle.root}: cannot be written to; copy the bundle, and build engines there")
    problems = {part: graph_problem(model) for part in PARTS if (model := bundle.part(part))}
    for problem in filter(None, problems.values()):
        log(f"no engine: {problem}")
    if all(problems.values()):
        raise ExportError(f"{bundle.root}: TensorRT takes no model of it: {'; '.join(problems.values())}")
    gpu = nvidia.gpu(chosen.index)
    package = import_tensorrt().__version__
    log("building engines is experimental: nobody has run it on a GPU yet")
    runtime = import_onnxruntime().__version__
    log(f"{gpu.name} ({gpu.architecture}), TensorRT {package}, ONNX Runtime {runtime}")
    engines: list[EngineSpec] = []
    with tempfile.TemporaryDirectory(prefix=f".{bundle.root.name}.engines-", dir=bundle.root.parent) as name:
        for part, problem in problems.items():
            for shape in [] if problem else largest_batches(part_of(bundle, part)):
                log(f"{part}, up to {shape[0]} x {shape[1]} tokens")
                engines.append(_build(bundle, part, chosen, gpu, shape, Path(name)))
        listed = _commit(bundle, gpu, engines, Path(name))
    for spec in engines:
        trust(listed, spec)
    return [listed.path(spec.engine) for spec in engines]


def graph_problem(spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
    """Return why no engine can be built of a model, as far as its settings tell, or "".

    The rest is said by TensorRT's own parser when an engine is built.
    """
    if isinstance(spec, EmbedderSpec) and spec.layout == "packed":
        return f"{spec.name} is a decoder, which CUDA runs without padding: use cuda:N"
    if spec.precision not in ("fp32", "fp16"):
        return f"engines are built from graphs in fp32 or fp16, and {spec.name} is in {spec.precision}"
    return ""


def part_of(bundle: Bundle, part: str) -> EmbedderSpec | LearnedSegmenterSpec:
    """Return the settings of a part; raises BundleError if the bundle lacks it."""
    spec = bundle.part(part)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    return spec


def largest_batches(spec: EmbedderSpec | LearnedSegmenterSpec) -> list[tuple[int, int]]:
    """Return rows and tokens of the largest batch of each engine of a model."""
    longest = -(-spec.max_tokens // _STEP) * _STEP
    widths = {longest} | {min(width, longest) for width in _WIDTHS if isinstance(spec, EmbedderSpec)}
    return [(_PLACES // width, width) for width in sorted(widths, reverse=True)]


def _build(
    bundle: Bundle, part: Part, device: Device, gpu: nvidia.Gpu, shape: tuple[int, int], work: Path
) -> EngineSpec:  # fmt: skip
    """Build one engine below `work`, in the place that it will have in the bundle."""
    spec = part_of(bundle, part)
    version = nvidia.tensorrt_version() or ""
    relative = f"{_FOLDER}/{_folder_name(gpu.name)}/{part}-{shape[0]}x{shape[1]}"
    folder = work / relative
    folder.mkdir(parents=True)
    graph = bundle.path(spec.model)
    # Batches are full of rows, and their texts have about half the tokens: chunks of 26, documents of 600.
    usual = (shape[0], max(1, shape[1] // 2))
    source = ir.load(graph).graph
    ranges = {str(item.name): ((1, 1), usual, shape) for item in source.inputs}
    plan = folder / "model.engine"
    timing = home() / "tensorrt" / f"{_folder_name(gpu.name)}-{version}.timing"
    try:
        with tempfile.TemporaryDirectory(dir=work) as name:
            half = graph if spec.precision == "fp16" else write_half(graph, Path(name))
            build_plan(half, ranges, plan, index=device.index, timing=timing)
    except ExportError as error:
        raise ExportError(f"{part}: {error}") from None
    context = write_context(graph, plan, gpu.architecture)
    check_engine_graph(context, plan.name)
    open_session(context, device)  # an engine that does not load is not listed
    return EngineSpec(
        part=part, model=f"{relative}/{context.name}", engine=f"{relative}/{plan.name}",
        made_of=bundle.graph_hash(spec), architecture=gpu.architecture, gpu=gpu.name, tensorrt=version,
        onnxruntime=import_onnxruntime().__version__, rows=shape[0], tokens=shape[1],
        precision="fp16",
    )  # fmt: skip


def _commit(bundle: Bundle, gpu: nvidia.Gpu, engines: Sequence[EngineSpec], work: Path) -> Bundle:
    """Move the engines into the bundle and rewrite its manifest. Returns the bundle as it is now."""
    manifest = bundle.manifest
    kinds = (gpu.name, "")  # engines that do not name their GPU fit none
    old = [
        engine
        for engine in manifest.engines or ()
        if engine.architecture == gpu.architecture and engine.gpu in kinds
    ]
    gone = {path for engine in old for path in (engine.model, engine.engine)}
    others = tuple(engine for engine in manifest.engines or () if engine not in old)
    new = [path for engine in engines for path in (engine.model, engine.engine)]
    entries = [
        FileEntry(path, (work / path).stat().st_size, sha256_of(work / path), ends_of(work / path))
        for path in new
    ]
    files = [entry for entry in manifest.files if entry.path not in gone] + entries
    listed = replace(
        manifest,
        files=tuple(sorted(files, key=lambda entry: entry.path)),
        engines=(*others, *engines) or None,
    )
    # A bundle with a file too many or too few is refused, and until the end this is one.
    for path in sorted({str(Path(path).parent) for path in gone}):
        shutil.rmtree(bundle.root / path, ignore_errors=True)
    for path in sorted({str(Path(path).parent) for path in new}):
        shutil.rmtree(bundle.root / path, ignore_errors=True)  # left by a killed process
        (bundle.root / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).rename(bundle.root / path)
    write_whole(bundle.root / MANIFEST, listed.to_json())
    return Bundle(bundle.root, listed)


def _folder_name(gpu: str) -> str:
    """Return a GPU's name as that of a folder: "NVIDIA H200" is "NVIDIA-H200"."""
    return re.sub("[^A-Za-z0-9]+", "-", gpu).strip("-") or "gpu"


Run = Callable[[], Iterable[NDArray[Any]]]
_ROUNDS = 5
# What a job of VCS has, in words of the demo's texts: documents of about 600 tokens, chunks of about 26.
_DOCUMENTS, _DOCUMENT_WORDS = 27, 450
_CHUNKS, _CHUNK_WORDS = 630, 20


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
        same = difference <= TOLERANCES["fp16"]
        detail = f"differs from CUDA by {difference:.1e} at most, {TOLERANCES['fp16']:.0e} allowed"
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
