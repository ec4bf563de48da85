"""A bundle's TensorRT engines: building them in half precision, and comparing them with CUDA.

TensorRT's own builder makes a strongly typed network: it computes each step in the precision that
the graph states. For sums inside attention it does not say in which precision it adds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from vcs_export.checks.quantization_error import embedder_quantization_error
from vcs_export.checks.verify import TOLERANCES
from vcs_export.errors import ExportError
from vcs_export.graph.half import write_half
from vcs_numba.jit.owners import make_folder
from vcs_runtime.bundle.manifest import PARTS, EmbedderSpec, LearnedSegmenterSpec, Part
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.inference import nvidia, rtx_session, tensorrt
from vcs_runtime.inference.device import Device
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.speed import demo_texts, in_turns, job_texts
from vcs_runtime.segmentation.boundary_model import BoundaryModel
from vcs_runtime.util.atomic import write_whole

_LEAST_COSINE = 0.99999  # in the mean, of vectors in fp16 to those in float32
# The largest difference between two runs in fp16. A number of a unit vector is far below 1. A
# probability has up to a quarter of the error of its logit, which may be ten or more.
_NEAR: dict[Part, float] = {"embedder": TOLERANCES["fp16"], "segmenter": 2e-2}

Log = Callable[[str], object]


def build_engines(bundle: Bundle, log: Log, builder_log: TextIO | None = None) -> list[Path]:
    """Build TensorRT engines of a bundle's encoders, and return their files.

    They are stored in the user's folder, in place of engines of the same graph and release.
    `builder_log` is a file for the log of TensorRT's builder. Raises DeviceError, ExportError and
    BundleError; then a model's engine stays as it was.
    """
    problems = []
    paths = []
    for part in PARTS:
        spec = bundle.part(part)
        problem = tensorrt.graph_problem(spec) if spec else ""
        if problem:
            log(f"no engine: {problem}")
            problems.append(problem)
        elif spec:
            paths.append(_build(bundle, spec, log, builder_log))
    if not paths:
        raise ExportError(
            f"{bundle.root}: TensorRT accepts none of its models: {'; '.join(problems)}"
        )
    return paths


def _build(bundle: Bundle, spec: tensorrt.Spec, log: Log, builder_log: TextIO | None) -> Path:
    """Build the engine of a model, and put it into its folder."""
    try:
        folder = tensorrt.engine_folder(bundle, spec)
        make_folder(folder, 0o700)
    except OSError as error:
        raise ExportError(f"engines cannot be saved: {error}") from None
    graph = bundle.path(spec.model)
    with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as work:
        half = graph if spec.precision == "fp16" else write_half(graph, Path(work, "half"))
        if isinstance(spec, EmbedderSpec):
            _check_near(bundle, spec, half, log)
        try:
            plan = build_plan(half, tensorrt.profiles_of(spec), builder_log)
        except ExportError as error:
            raise ExportError(f"{spec.name}: {error}") from None
    digest = sha256(plan).hexdigest()
    # An engine is loaded only if the record has its sha256.
    write_whole(folder / tensorrt.PLAN, plan)
    tensorrt.record(folder, digest, {})
    shapes = " and ".join(f"{rows} x {tokens}" for rows, tokens in tensorrt.profiles_of(spec))
    log(f"{spec.name}: by {rtx_session.release()} for {', '.join(rtx_session.targets())}")
    log(f"{spec.name}: batches up to {shapes} tokens, {len(plan):,} bytes, sha256 {digest}")
    return folder / tensorrt.PLAN


def build_plan(
    model: Path, profiles: Sequence[tuple[int, int]], builder_log: TextIO | None = None
) -> bytes:
    """Return the engine of a graph, with a profile for each largest batch of `profiles`.

    All inputs are `(rows, tokens)`. TensorRT for RTX needs no GPU; NVIDIA's own TensorRT builds on
    the first one. Errors (ExportError) have TensorRT's own words.
    """
    trt = rtx_session.import_tensorrt()
    log = rtx_session.logger(trt, builder_log)
    builder = trt.Builder(log)
    strongly_typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    # TensorRT 11 knows no other networks, and has no flag for them.
    flags = 0 if strongly_typed is None else 1 << int(strongly_typed)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(os.fspath(model)):
        errors = [parser.get_error(number) for number in range(parser.num_errors)]
        words = [f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in errors]
        raise ExportError(
            f"TensorRT's parser refuses the graph: {'; '.join(words) or log.words()}. It accepts"
            " only standard ONNX operators in fp32 and fp16: use cuda:N"
        )
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default: float32 would have ten bits
    if rtx_session.is_rtx(trt):
        capabilities = rtx_session.targets()
        config.num_compute_capabilities = len(capabilities)
        for place, name in enumerate(capabilities):
            config.set_compute_capability(getattr(trt.ComputeCapability, name.upper()), place)
    for rows, tokens in profiles:
        profile = builder.create_optimization_profile()
        for number in range(network.num_inputs):
            # Batches are full of rows, and their texts have about half the tokens.
            usual = (rows, max(1, tokens // 2))
            profile.set_shape(network.get_input(number).name, (1, 1), usual, (rows, tokens))
        if config.add_optimization_profile(profile) < 0:
            raise ExportError(f"TensorRT refuses batches of {rows} x {tokens}: {log.words()}")
    serialised = builder.build_serialized_network(network, config)
    if serialised is None:
        raise ExportError(f"TensorRT builds no engine: {log.words()}: use cuda:N")
    return bytes(memoryview(serialised))


def _check_near(bundle: Bundle, spec: EmbedderSpec, half: Path, log: Log) -> None:
    """Compare the graph in half precision with the bundle's on the CPU; raises ExportError."""
    error = embedder_quantization_error(half, bundle.root, spec, demo_texts())
    cosines = f"mean {error.cosine_mean:.7f}, lowest {error.cosine_min:.7f}"
    log(f"cosine of fp16 to the bundle's vectors, {error.texts} texts: {cosines}")
    if error.cosine_mean < _LEAST_COSINE:
        raise ExportError(
            f"{spec.name} loses too much in fp16: cosines {cosines}, at least {_LEAST_COSINE}"
            " needed"
        )


Run = Callable[[], Iterable[NDArray[Any]]]


def check_engines(bundle: Bundle, log: Log) -> None:
    """Compare a bundle's engines with CUDA on a GPU, and record their speed.

    Raises ExportError if results differ too much, and DeviceError if there is no engine.
    """
    for part in PARTS:
        spec = bundle.part(part)
        if spec and not tensorrt.graph_problem(spec):
            _check_part(bundle, part, log)


def _check_part(bundle: Bundle, part: Part, log: Log) -> None:
    device = tensorrt.choose_for(bundle, part, "tensorrt")
    engine, index = device.engine, device.index
    assert engine is not None
    with ExitStack() as stack:
        ours = _opened(bundle, part, device, stack)
        theirs = _opened(bundle, part, tensorrt.choose_for(bundle, part, f"cuda:{index}"), stack)
        pairs = zip(ours(), theirs(), strict=True)
        difference = max(float(np.abs(a - b).max()) for a, b in pairs)
        words = f"{part} differs from CUDA by {difference:.1e} at most, {_NEAR[part]:.0e} allowed"
        if not difference <= _NEAR[part]:  # also NaN
            tensorrt.record(engine.path.parent, engine.sha256, {})
            raise ExportError(f"{words}: use cuda:{index}")
        seconds, cuda_seconds = in_turns((ours, theirs))
    times_cuda = {nvidia.gpu(index).name: cuda_seconds / seconds}
    tensorrt.record(engine.path.parent, engine.sha256, times_cuda)
    log(f"{words}; {cuda_seconds / seconds:.2f} times as fast")


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
