"""TensorRT engines of a bundle: built by ONNX Runtime's TensorRT provider, listed in `bundle.json`, checked.

ONNX Runtime writes a graph of one node, EPContext, and the engine beside it. This is its "embed mode" 0,
because an engine inside the graph could have no more than 2 GB. The options are documented at
https://onnxruntime.ai/docs/execution-providers/TensorRT-ExecutionProvider.html. Graphs are typed: no option
lets TensorRT lower a precision.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from vcs_export.checks.quantization_error import demo_texts
from vcs_export.checks.tensorrt_parser import parser_problems
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
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.bundle.paths import home
from vcs_runtime.errors import BundleError, DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import (
    Device,
    choose_device,
    cuda_of,
    import_onnxruntime,
    provider_options,
)
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.tensorrt import (
    choose_for,
    fitting,
    lacks_fp8,
    trust,
)
from vcs_runtime.segmentation.boundary_model import BoundaryModel
from vcs_runtime.util.atomic import write_whole

# The largest batch of an engine by default: documents of a thousand tokens, and enough chunks to keep a GPU
# busy. An engine takes the memory of its largest batch, whatever is run.
_ROWS, _TOKENS = 32, 1024
_FOLDER = "engines"
_ROUNDS = 5

Log = Callable[[str], None]


def build_engines(
    bundle: Bundle,
    device: str = "tensorrt:0",
    shapes: Sequence[tuple[int, int]] | None = None,
    parts: Sequence[str] = (),
    *,
    log: Log = lambda line: None,
) -> list[Path]:
    """Build TensorRT engines of the bundle's graphs for a GPU, and list them in its `bundle.json`.

    Engines of the same parts for this kind of GPU are replaced, whatever versions built them. After an error
    the bundle is as it was.

    Parameters
    ----------
    bundle
        The bundle, which must be writable.
    device
        The GPU: "tensorrt:N".
    shapes
        `(rows, tokens)` of the largest batch of each engine of the embedder.
    parts
        "embedder", "segmenter". By default all parts of the bundle.
    log
        Called with one line about each engine, which takes minutes.

    Returns
    -------
    paths
        Files of the engines.

    Raises
    ------
    DeviceError
        There is no such GPU, or no TensorRT.
    ExportError
        TensorRT does not take a graph, or the bundle cannot be written to.
    """
    chosen = choose_device(device)
    if chosen.provider_name != "ort-tensorrt":
        raise DeviceError(f"{device}: engines are built on a GPU named as tensorrt:N")
    if not os.access(bundle.root, os.W_OK):
        raise ExportError(f"{bundle.root}: cannot be written to; copy the bundle, and build engines there")
    chosen_parts = [part for part in PARTS if part in (parts or PARTS) and bundle.part(part)]
    for part in chosen_parts:
        if problems := _problems(bundle, part):
            raise ExportError(f"{bundle.root}: TensorRT does not take the {part}: {'; '.join(problems)}")
        if hindrance := lacks_fp8(bundle, part, chosen.index):
            raise DeviceError(f"{device}: {hindrance}")
    gpu = nvidia.gpu(chosen.index)
    engines: list[EngineSpec] = []
    with tempfile.TemporaryDirectory(prefix=f".{bundle.root.name}.engines-", dir=bundle.root.parent) as name:
        for part in chosen_parts:
            for rows, tokens in _largest_batches(bundle, part, shapes):
                log(f"{part}, up to {rows} x {tokens} tokens, for {gpu.name} ({gpu.architecture})")
                engines.append(_build(bundle, part, chosen, gpu.architecture, (rows, tokens), Path(name)))
        listed = _commit(bundle, chosen_parts, gpu.architecture, engines, Path(name))
    for spec in engines:
        trust(listed, spec)
    return [listed.path(spec.engine) for spec in engines]


def check_engines(
    bundle: Bundle, device: str = "tensorrt:0", *, static: bool = False, log: Log = lambda line: None
) -> Iterator[Check]:
    """Check that TensorRT takes the graphs of a bundle, and that its engines compute what CUDA does.

    Engines that are missing, or do not fit this machine, are built.

    Parameters
    ----------
    bundle
        The bundle.
    device
        The GPU: "tensorrt:N".
    static
        Whether to check only what the graphs tell, without a GPU.
    log
        Called with one line about each engine that is built.

    Yields
    ------
    check
        Each check as it is done.

    Raises
    ------
    DeviceError, ExportError
        As for `build_engines`.
    """
    parts = [part for part in PARTS if bundle.part(part)]
    for part in parts:
        problems = _problems(bundle, part)
        yield Check(f"{part}: operators", not problems, "; ".join(problems) or "all known to TensorRT 10")
        if problems and not static:
            return
    if static:
        return
    index = choose_device(device).index
    missing = [part for part in parts if not fitting(bundle, part, index)[0]]
    if missing:
        started = time.perf_counter()
        build_engines(bundle, device, parts=missing, log=log)
        yield Check("built", True, f"{', '.join(missing)} in {time.perf_counter() - started:.0f} s")
        bundle = open_bundle(bundle.root)
    for part in parts:
        yield from (_compare_embedder if part == "embedder" else _compare_segmenter)(bundle, device)


def _problems(bundle: Bundle, part: str) -> list[str]:
    """Find what TensorRT would refuse in the graph of a part, a line each."""
    spec = _spec(bundle, part)
    problems = parser_problems(bundle.path(spec.model))
    if isinstance(spec, EmbedderSpec) and spec.layout == "packed":
        problems.append("its texts are packed; export it with `--target tensorrt`")
    return problems


def _spec(bundle: Bundle, part: str) -> EmbedderSpec | LearnedSegmenterSpec:
    spec = bundle.part(part)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    return spec


def _largest_batches(
    bundle: Bundle, part: str, shapes: Sequence[tuple[int, int]] | None
) -> list[tuple[int, int]]:
    # The runtime pads windows to a multiple of 16 tokens.
    longest = -(-_spec(bundle, part).max_tokens // 16) * 16
    chosen = shapes if shapes and part == "embedder" else [(_ROWS, _TOKENS)]
    return sorted({(rows, min(tokens, longest)) for rows, tokens in chosen})


def build_options(
    device: Device, inputs: Sequence[str], shape: tuple[int, int], context: Path, timing: Path
) -> dict[str, str]:
    """Return the TensorRT provider's options for building an engine.

    Parameters
    ----------
    device
        The GPU.
    inputs
        Names of the graph's inputs, each `(rows, tokens)`.
    shape
        `(rows, tokens)` of the largest batch.
    context
        File to write: the graph that stands for the engine.
    timing
        Folder with the measured speed of kernels, so that the next engine is built sooner.

    Returns
    -------
    options
        Values by the names of the provider's options.
    """
    rows, tokens = shape
    # Half of the largest batch is near the usual one.
    ranges = {"min": (1, 1), "opt": (max(1, rows // 2), max(1, tokens // 2)), "max": (rows, tokens)}
    return {
        **provider_options(device)[0][1],
        **{
            f"trt_profile_{which}_shapes": ",".join(f"{name}:{r}x{t}" for name in inputs)
            for which, (r, t) in ranges.items()
        },
        "trt_engine_cache_enable": "1",
        "trt_dump_ep_context_model": "1",
        "trt_ep_context_embed_mode": "0",
        "trt_ep_context_file_path": os.fspath(context),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": os.fspath(timing),
    }


def _build(
    bundle: Bundle, part: Part, device: Device, architecture: str, shape: tuple[int, int], work: Path
) -> EngineSpec:
    """Build one engine below `work`, in the place that it will have in the bundle."""
    ort = import_onnxruntime()
    spec = _spec(bundle, part)
    version = nvidia.tensorrt_version() or ""
    relative = f"{_FOLDER}/{architecture}/{part}-{shape[0]}x{shape[1]}"
    folder = work / relative
    folder.mkdir(parents=True)
    timing = home() / "tensorrt"
    timing.mkdir(parents=True, exist_ok=True)
    inputs = [str(item.name) for item in ir.load(bundle.path(spec.model)).graph.inputs]
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # TensorRT has its own
    context = folder / "model.onnx"
    providers = provider_options(device)
    built = (providers[0][0], build_options(device, inputs, shape, context, timing))
    try:
        ort.InferenceSession(
            os.fspath(bundle.path(spec.model)),
            options,
            providers=[built, *providers[1:]],
            enable_fallback=False,
        )
    except Exception as error:  # see vcs_runtime.inference.device.open_session
        raise ExportError(f"{part}: TensorRT could not build an engine: {error}") from None
    engines = [path for path in folder.iterdir() if path.suffix == ".engine"]
    if not context.is_file() or len(engines) != 1:
        raise ExportError(
            f"{part}: TensorRT took the graph in {len(engines)} pieces, and an engine must hold all of it: "
            "see what `vcs-runtime engine check --static` says, and ONNX Runtime's log"
        )
    check_engine_graph(context, engines[0].name)
    for path in folder.iterdir():
        if path not in (context, *engines):
            path.unlink()  # a file of the shapes, which the manifest has too
    return EngineSpec(
        part=part,
        model=f"{relative}/{context.name}",
        engine=f"{relative}/{engines[0].name}",
        made_of=bundle.graph_hash(spec),
        architecture=architecture,
        tensorrt=version,
        onnxruntime=ort.__version__,
        rows=shape[0],
        tokens=shape[1],
    )


def _commit(
    bundle: Bundle, parts: Sequence[str], architecture: str, engines: Sequence[EngineSpec], work: Path
) -> Bundle:
    """Move the engines into the bundle and rewrite its manifest. Returns the bundle as it is now."""
    manifest = bundle.manifest
    old = [e for e in manifest.engines or () if e.part in parts and e.architecture == architecture]
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


def _compare_embedder(bundle: Bundle, device: str) -> Iterator[Check]:
    chosen = choose_for(bundle, "embedder", device)
    texts = demo_texts()
    texts += [chunk for text in texts for chunk in text.split(". ")]
    with Embedder(bundle, chosen) as ours, Embedder(bundle, cuda_of(chosen)) as cuda:
        tolerance = TOLERANCES.get(ours.spec.precision, 1e-3)
        difference = float(np.abs(ours.embed(texts) - cuda.embed(texts)).max())
        yield _like_cuda("embedder", difference, tolerance)
        yield _faster("embedder", lambda: ours.embed(texts), lambda: cuda.embed(texts))


def _compare_segmenter(bundle: Bundle, device: str) -> Iterator[Check]:
    chosen = choose_for(bundle, "segmenter", device)
    spec = _spec(bundle, "segmenter")
    assert isinstance(spec, LearnedSegmenterSpec)
    texts = demo_texts() * 4
    ours, cuda = (BoundaryModel(bundle, spec, device) for device in (chosen, cuda_of(chosen)))
    pairs = zip(ours.probabilities(texts), cuda.probabilities(texts), strict=True)
    difference = max(float(np.abs(a - b).max()) for a, b in pairs)
    yield _like_cuda("segmenter", difference, TOLERANCES.get(spec.precision, 1e-3))
    yield _faster("segmenter", lambda: ours.probabilities(texts), lambda: cuda.probabilities(texts))
    ours.close()
    cuda.close()


def _like_cuda(part: str, difference: float, tolerance: float) -> Check:
    detail = f"differs from CUDA by {difference:.1e} at most, {tolerance:.0e} allowed"
    return Check(f"{part}: parity", difference <= tolerance, detail)


def _faster(part: str, ours: Callable[[], object], cuda: Callable[[], object]) -> Check:
    """Measure the speed against CUDA in turns. The check only reports it."""
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(_ROUNDS):
        for side, run in zip(seconds, (ours, cuda), strict=True):
            started = time.perf_counter()
            run()
            side.append(time.perf_counter() - started)
    ratio = float(np.median(seconds[1]) / np.median(seconds[0]))
    return Check(f"{part}: speed", True, f"{ratio:.2f} times that of CUDA")
