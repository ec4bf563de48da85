"""TensorRT engines of a bundle: what building them needs, and building them into the bundle.

TensorRT builds each engine (`tensorrt_builder`), whose results and speed are compared with those of CUDA.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace
from numpy.typing import NDArray

from vcs_export.checks.quantization_error import demo_texts
from vcs_export.checks.tensorrt_builder import build_plan, import_tensorrt, spell_out_attention, write_context
from vcs_export.checks.verify import TOLERANCES, Check
from vcs_export.errors import ExportError
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

# Batches of the default engines. A job of VCS has a few documents of hundreds of tokens, and thousands of
# chunks of about 26. In one engine for both, chunks would run in as few rows as documents.
_CHUNK, _DOCUMENT = 64, 1024
_PLACES = 32768  # rows x tokens: the largest batch that the runtime makes for an engine
_STEP = 16  # the runtime pads windows to a multiple of it
_FOLDER = "engines"

# Needs are calculated. The parser, the builder and the finished engine each hold the weights in the host's
# memory.
_COPIES, _HOST = 3, 2e9
# Bytes of the GPU for each place of the largest batch, and for each number of a vector: inputs and outputs of
# the widest layer. NV-Embed-v2 in half precision has 28,672 numbers there, for vectors of 4,096.
_PLACE = 32
_SEGMENTER_WIDTH = 1024  # not in the manifest; of the largest learned segmenters
# Minutes of an engine, and of each GB of weights: TensorRT reads, transforms and times them.
_MINUTES, _MINUTES_PER_GB = 1.0, 0.5

Log = Callable[[str], None]


def build_engines(
    bundle: Bundle, device: str = "tensorrt:0", shapes: Sequence[tuple[int, int]] | None = None,
    parts: Sequence[str] = (), *, spell_out: bool = False, log: Log = lambda line: None,
) -> list[Path]:  # fmt: skip
    """Build TensorRT engines of the bundle's graphs for a GPU, and list them in its `bundle.json`.

    `shapes` has the largest batch `(rows, tokens)` of each engine of the embedder; None makes one engine for
    chunks and one for documents. Engines of the same parts for this kind of GPU are replaced, whatever
    versions built them. After an error (DeviceError, ExportError) the bundle is as it was.
    """
    chosen = choose_device(device)
    if chosen.provider_name != "ort-tensorrt":
        raise DeviceError(f"{device}: engines are built on a GPU named as tensorrt:N")
    if not os.access(bundle.root, os.W_OK):
        raise ExportError(f"{bundle.root}: cannot be written to; copy the bundle, and build engines there")
    chosen_parts = [part for part in PARTS if part in (parts or PARTS) and bundle.part(part)]
    for part in chosen_parts:
        if problem := graph_problem(bundle, part):
            raise ExportError(f"{bundle.root}: TensorRT does not take the {part}: {problem}")
    gpu = nvidia.gpu(chosen.index)
    package = import_tensorrt().__version__
    batches = largest_batches(bundle, chosen_parts, shapes)
    log("building engines is experimental: nobody has run it on a GPU yet")
    runtime = import_onnxruntime().__version__
    log(f"{gpu.name} ({gpu.architecture}), TensorRT {package}, ONNX Runtime {runtime}")
    log(f"calculated needs: {needs_of(bundle, batches)}")
    engines: list[EngineSpec] = []
    with tempfile.TemporaryDirectory(prefix=f".{bundle.root.name}.engines-", dir=bundle.root.parent) as name:
        for part, (rows, tokens) in batches:
            log(f"{part}, up to {rows} x {tokens} tokens")
            engines.append(_build(bundle, part, chosen, gpu, (rows, tokens), Path(name), spell_out))
        listed = _commit(bundle, chosen_parts, gpu, engines, Path(name))
    for spec in engines:
        trust(listed, spec)
    return [listed.path(spec.engine) for spec in engines]


def graph_problem(bundle: Bundle, part: str) -> str:
    """Return why no engine can be built of a part, as far as `bundle.json` tells, or "".

    The rest is said by TensorRT's own parser when an engine is built.
    """
    spec = part_of(bundle, part)
    if spec.precision in ("int8", "int4", "fp8"):
        return f"TensorRT does not multiply its {spec.precision} matrices: export it in fp16"
    if isinstance(spec, EmbedderSpec) and spec.layout == "packed":
        return "its texts are packed; export it with `--target tensorrt`"
    return ""


def part_of(bundle: Bundle, part: str) -> EmbedderSpec | LearnedSegmenterSpec:
    """Return the settings of a part; raises BundleError if the bundle lacks it."""
    spec = bundle.part(part)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    return spec


def largest_batches(
    bundle: Bundle, parts: Sequence[Part], shapes: Sequence[tuple[int, int]] | None = None
) -> list[tuple[Part, tuple[int, int]]]:
    """Return the part and the largest batch of each engine, `shapes` as for `build_engines`."""
    chosen = []
    for part in parts:
        longest = -(-part_of(bundle, part).max_tokens // _STEP) * _STEP
        if shapes and part == "embedder":
            batches = {(rows, min(tokens, longest)) for rows, tokens in shapes}
        else:
            widths = {
                min(width, longest) for width in ([_CHUNK, _DOCUMENT] if part == "embedder" else [_DOCUMENT])
            }
            batches = {(_PLACES // width, width) for width in widths}
        chosen += [(part, batch) for batch in sorted(batches)]
    return chosen


@dataclass(frozen=True)
class Needs:
    """What building engines needs, calculated from the weights."""

    memory: float  # bytes of the host
    disk: float  # bytes beside the bundle
    gpu_memory: float  # bytes of the GPU for all engines at once, as scoring opens them
    minutes: float

    def __str__(self) -> str:
        return (
            f"{_gb(self.memory)} of memory, {_gb(self.disk)} of disk, {_gb(self.gpu_memory)} of the GPU's "
            f"memory, about {self.minutes:.0f} min"
        )


def needs_of(bundle: Bundle, batches: Sequence[tuple[Part, tuple[int, int]]]) -> Needs:
    """Calculate what engines need, given the part and the largest batch `(rows, tokens)` of each."""
    memory = disk = gpu_memory = minutes = 0.0
    for part, (rows, tokens) in batches:
        spec = part_of(bundle, part)
        weights = bundle.weights_size(spec)
        width = spec.dimension if isinstance(spec, EmbedderSpec) else _SEGMENTER_WIDTH
        memory = max(memory, _COPIES * weights + _HOST)
        disk += weights
        gpu_memory += weights + _PLACE * width * rows * tokens
        minutes += _MINUTES + _MINUTES_PER_GB * weights / 1e9
    return Needs(memory, disk, gpu_memory, minutes)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


def _build(
    bundle: Bundle, part: Part, device: Device, gpu: nvidia.Gpu, shape: tuple[int, int], work: Path,
    spell_out: bool,
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
            built_of = spell_out_attention(graph, Path(name)) if spell_out else graph
            build_plan(built_of, ranges, plan, index=device.index, timing=timing)
    except ExportError as error:
        hint = ""
        if not spell_out and any(node.op_type == "Attention" for node in source):
            hint = "; if attention has no kernel for this GPU, build with --spell-out-attention"
        raise ExportError(f"{part}: {error}{hint}") from None
    context = write_context(graph, plan, gpu.architecture)
    check_engine_graph(context, plan.name)
    open_session(context, device)  # an engine that does not load is not listed
    return EngineSpec(
        part=part, model=f"{relative}/{context.name}", engine=f"{relative}/{plan.name}",
        made_of=bundle.graph_hash(spec), architecture=gpu.architecture, gpu=gpu.name, tensorrt=version,
        onnxruntime=import_onnxruntime().__version__, rows=shape[0], tokens=shape[1],
    )  # fmt: skip


def _commit(
    bundle: Bundle, parts: Sequence[str], gpu: nvidia.Gpu, engines: Sequence[EngineSpec], work: Path
) -> Bundle:
    """Move the engines into the bundle and rewrite its manifest. Returns the bundle as it is now."""
    manifest = bundle.manifest
    kinds = (gpu.name, "")  # engines that do not name their GPU fit none
    old = [
        engine
        for engine in manifest.engines or ()
        if engine.part in parts and engine.architecture == gpu.architecture and engine.gpu in kinds
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
        spec = part_of(bundle, part)
        tolerance = TOLERANCES.get((spec.cuda and spec.cuda.precision) or spec.precision, 1e-3)
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
