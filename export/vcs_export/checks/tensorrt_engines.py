"""A bundle's TensorRT engines: building in half precision, comparing with CUDA, and storing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checks.quantization_error import embedder_quantization_error
from vcs_export.checks.tensorrt_builder import build_plan, import_tensorrt, write_context
from vcs_export.checks.verify import TOLERANCES
from vcs_export.errors import ExportError
from vcs_export.graph.half import write_half
from vcs_numba.jit.owners import make_folder
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import PARTS, EmbedderSpec, LearnedSegmenterSpec, Part
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import Device, Engine, choose_device, cuda_of, split_device
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.speed import demo_texts, in_turns, job_texts
from vcs_runtime.inference.tensorrt import engines_folder, record
from vcs_runtime.segmentation.boundary_model import BoundaryModel

# Tokens in a row of an embedder's engines beside that for the longest input. A job of VCS has a few
# documents of hundreds of tokens, and thousands of chunks of about 26, which would otherwise run in
# batches as small as those of documents.
_WIDTHS = (64, 1024)
_PLACES = 32768  # rows x tokens: the largest batch that the runtime makes for an engine
_LEAST_COSINE = 0.99999  # in the mean, of vectors in fp16 to those in float32
# The largest difference between two runs in fp16. A number of a unit vector is far below 1. A
# probability has up to a quarter of the error of its logit, which may be ten or more.
_NEAR: dict[Part, float] = {"embedder": TOLERANCES["fp16"], "segmenter": 2e-2}
_STEP = 16  # the runtime pads windows to a multiple of it

Log = Callable[[str], None]


def build_engines(
    bundle: Bundle, device: str = "tensorrt:0", log: Log = lambda line: None
) -> list[Path]:
    """Build TensorRT engines of a bundle's encoders for a GPU, and return their files.

    The engines are stored in the user's folder.

    Results and speed are compared with CUDA's, and the speed is recorded. Engines of the same
    graph, GPU and versions are replaced. Raises DeviceError, ExportError and BundleError; then a
    model's engines stay.
    """
    if split_device(device)[0] != "tensorrt":
        raise DeviceError(f"{device}: engines are built on a GPU named as tensorrt:N")
    chosen = choose_device(device)
    problems = {part: graph_problem(model) for part in PARTS if (model := bundle.part(part))}
    for problem in filter(None, problems.values()):
        log(f"no engine: {problem}")
    if all(problems.values()):
        raise ExportError(
            f"{bundle.root}: TensorRT takes no model of it: {'; '.join(problems.values())}"
        )
    import_tensorrt()
    log("building engines is experimental: nobody has run it on a GPU yet")
    return [
        path
        for part in problems
        if not problems[part]
        for path in _build(bundle, part, chosen, log)
    ]


def graph_problem(spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
    """Return why no engine can be built of a model, as far as its settings tell, or "".

    The rest is said by TensorRT's own parser when an engine is built.
    """
    if isinstance(spec, EmbedderSpec) and spec.layout == "packed":
        return f"{spec.name} is a decoder, which CUDA runs without padding: use cuda:N"
    if spec.precision not in ("fp32", "fp16"):
        return (
            f"engines are built from graphs in fp32 or fp16, and {spec.name} is in {spec.precision}"
        )
    return ""


def largest_batches(spec: EmbedderSpec | LearnedSegmenterSpec) -> list[tuple[int, int]]:
    """Return (rows, tokens) of each engine's largest batch for a model, shortest texts first."""
    longest = -(-spec.max_tokens // _STEP) * _STEP
    widths = {longest} | {
        min(width, longest) for width in _WIDTHS if isinstance(spec, EmbedderSpec)
    }
    return [(_PLACES // width, width) for width in sorted(widths)]


def _build(bundle: Bundle, part: Part, device: Device, log: Log) -> list[Path]:
    """Build the engines of a model, and put them into their folder."""
    spec = bundle.part(part)
    assert spec is not None
    try:
        folder, place = engines_folder(bundle, part, device.index)
        make_folder(folder.parent, 0o700)
    except OSError as error:
        raise ExportError(f"engines cannot be kept: {error}") from None
    log(f"{part}: {place}")
    graph = bundle.path(spec.model)
    names = [str(item.name) for item in ir.load(graph).graph.inputs]
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as work:
        half = graph if spec.precision == "fp16" else write_half(graph, Path(work, "half"))
        if isinstance(spec, EmbedderSpec):
            _check_near(bundle, spec, half, log)
        new = Path(work, "new")
        new.mkdir(0o700)  # whatever the umask allows
        engines = []
        for shape in largest_batches(spec):
            log(f"{part}, up to {shape[0]} x {shape[1]} tokens")
            plan = new / f"{shape[0]}x{shape[1]}.engine"
            # Batches are full of rows, and their texts have about half the tokens.
            usual = (shape[0], max(1, shape[1] // 2))
            try:
                build_plan(
                    half, dict.fromkeys(names, ((1, 1), usual, shape)), plan, index=device.index
                )
            except ExportError as error:
                raise ExportError(f"{part}: {error}") from None
            context = write_context(graph, plan, nvidia.gpu(device.index).architecture)
            engines.append(Engine(context, *shape, sha256_of(plan)))
        times_cuda = _compare(bundle, part, replace(device, engines=tuple(engines)), log)
        record(new, engines, times_cuda)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    return sorted(folder.glob("*.engine"))


def _check_near(bundle: Bundle, spec: EmbedderSpec, half: Path, log: Log) -> None:
    """Compare the graph in half precision with the bundle's on the CPU; raises ExportError."""
    error = embedder_quantization_error(half, bundle.root, spec, demo_texts())
    cosines = f"mean {error.cosine_mean:.7f}, lowest {error.cosine_min:.7f}"
    log(f"cosine of fp16 to the bundle's vectors, {error.texts} texts: {cosines}")
    if error.cosine_mean < _LEAST_COSINE:
        raise ExportError(
            f"{spec.name} loses too much in fp16: cosines {cosines}, {_LEAST_COSINE} is the least"
        )


Run = Callable[[], Iterable[NDArray[Any]]]


def _compare(bundle: Bundle, part: Part, device: Device, log: Log) -> float:
    """Return the engines' speed divided by CUDA's; raise ExportError if results differ too much."""
    with ExitStack() as stack:
        ours, cuda = (_opened(bundle, part, each, stack) for each in (device, cuda_of(device)))
        difference = max(float(np.abs(a - b).max()) for a, b in zip(ours(), cuda(), strict=True))
        detail = f"{part} differs from CUDA by {difference:.1e} at most, {_NEAR[part]:.0e} allowed"
        if difference > _NEAR[part]:
            raise ExportError(f"{detail}: the engines are not kept")
        seconds, cuda_seconds = in_turns((ours, cuda))
    log(f"{detail}; {cuda_seconds / seconds:.2f} times as fast")
    return cuda_seconds / seconds


def _opened(bundle: Bundle, part: str, device: Device, stack: ExitStack) -> Run:
    """Open a part on a device until the stack ends, and return what runs it on texts of a job."""
    if part == "embedder":
        embedder = stack.enter_context(Embedder(bundle, device))
        texts = job_texts()
        return lambda: embedder.embed(texts)
    spec = bundle.part(part)
    assert isinstance(spec, LearnedSegmenterSpec)
    model = BoundaryModel(bundle, spec, device)
    stack.callback(model.close)
    return lambda: model.probabilities(demo_texts() * 4)
