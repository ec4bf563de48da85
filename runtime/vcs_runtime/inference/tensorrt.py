"""Where the models of a bundle run, and its TensorRT engines: which fit this machine, and running them.

An engine is built ahead of time (`vcs-runtime engine build`) for one kind of GPU and by one version of
TensorRT. Nothing is built when a model is opened. `bundle.json` says from what and for what each was built.

An engine is machine code, unlike all else in a bundle. It is loaded only on the machine that built it, or
where someone trusts its maker by `vcs-runtime engine trust`. Its speed is known only where
`vcs-runtime engine check` has measured it. Files in `home()` record both, by the hash of the engines.

An engine takes batches up to a size. It has one range of shapes, which holds memory for its largest batch:
ONNX Runtime would never leave the first of several (https://github.com/microsoft/onnxruntime/pull/31624). A
bundle may have several engines of one graph, and each holds the weights again.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from vcs_numba.jit.owners import make_folder
from vcs_runtime.bundle.manifest import EmbedderSpec, EngineSpec, LearnedSegmenterSpec
from vcs_runtime.bundle.opening import DIGITS, Bundle
from vcs_runtime.bundle.paths import own_folder
from vcs_runtime.errors import BundleError, DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.batching import RowLimit
from vcs_runtime.inference.device import Device, choose_device, import_onnxruntime, missing_libraries
from vcs_runtime.inference.session import Session
from vcs_runtime.util.atomic import write_whole

_FASTER = 1.05  # times as fast as CUDA, from which on "auto" prefers engines: less is within the noise
_HASH = 64  # characters of a sha256
# What it costs that CUDA runs a graph with quantised matrices which was written for another provider.
_WITHOUT_CUDA_GRAPH = dict.fromkeys(("int8", "int4"), "about ten times as long as fp16 does") | {
    "fp8": "the time and the memory of fp16"
}


def choose_for(
    bundle: Bundle, part: str, device: str, gpu_memory_gb: float | None = None, batch_invariant: bool = False
) -> Device:
    """Choose the device for a part of a bundle, "embedder" or "segmenter", with the engines that fit.

    "auto" takes TensorRT engines that fit and were measured here to be faster than CUDA, otherwise CUDA,
    otherwise the CPU. A DeviceError names the command that helps; ValueError: there is no such device.
    """
    chosen = _choose(bundle, part, device, gpu_memory_gb)
    return replace(chosen, batch_invariant=batch_invariant and chosen.is_gpu)


def _choose(bundle: Bundle, part: str, device: str, gpu_memory_gb: float | None) -> Device:
    chosen = choose_device(device, gpu_memory_gb)
    spec = bundle.part(part)
    if spec and spec.precision == "bf16" and chosen.provider_name == "ort-cpu":
        raise DeviceError(
            f"{device}: {spec.name} is in bf16, for which ONNX Runtime has kernels on a GPU only: use a GPU "
            "or openvino, or export it with `--precision fp16` or `fp32`"
        )
    hindrance = chosen.is_gpu and _hindrance(bundle, part, chosen)
    if hindrance:
        if device != "auto":
            raise DeviceError(f"{device}: {hindrance}")
        return replace(choose_device("cpu"), reason=f"auto: {hindrance}")
    if chosen.provider_name == "ort-tensorrt":
        engines, why = fitting(bundle, part, chosen.index)
        if not engines:
            raise DeviceError(f"{device}: {why}")
        return replace(chosen, engines=engines)
    if device == "auto" and chosen.provider_name == "ort-cuda":
        lacking = missing_libraries(tensorrt=True)
        engines, why = ((), "it is not installed") if lacking else fitting(bundle, part, chosen.index)
        if engines:
            times_cuda = speed(bundle, engines)
            why = describe_speed(bundle, times_cuda)
            if times_cuda is not None and times_cuda >= _FASTER:
                tensorrt = choose_device(f"tensorrt:{chosen.index}", gpu_memory_gb)
                return replace(tensorrt, engines=engines, reason=f"auto: TensorRT engine, {why}")
        return replace(chosen, reason=f"{chosen.reason}; TensorRT is not used: {why}")
    return chosen


def _hindrance(bundle: Bundle, part: str, device: Device) -> str:
    """Return why a GPU should not run a part of the bundle, or ""."""
    spec = bundle.part(part)
    if not isinstance(spec, EmbedderSpec):
        if spec is None or spec.precision != "int8":
            return ""
        # It takes the range of each input when it runs, and multiplies integers.
        return (
            f"the learned segmenter {spec.name} is in int8, for which ONNX Runtime has kernels on the CPU "
            "only: export it with `--precision fp16` for a GPU"
        )
    if spec.layout == "packed" and device.provider_name == "ort-tensorrt":
        return f"{spec.name} is a decoder, which CUDA runs without padding: use cuda:{device.index}"
    if spec.precision == "fp8" and not (gpu := nvidia.gpu(device.index)).has_fp8:
        return (
            f"{spec.name} is in FP8, which needs a GPU of compute capability 8.9 or later (Ada, Hopper, "
            f"Blackwell), and {gpu.name} is {gpu.architecture}: export it with `--precision fp16`"
        )
    if not spec.cuda and spec.layout == "packed" and spec.precision in _WITHOUT_CUDA_GRAPH:
        return (
            f"{spec.name} is in {spec.precision} and has no graph for CUDA, on which its other graph would "
            f"take {_WITHOUT_CUDA_GRAPH[spec.precision]}: export it again with this version"
        )
    return ""


def fitting(bundle: Bundle, part: str, index: int) -> tuple[tuple[EngineSpec, ...], str]:
    """Find the TensorRT engines of a part that run on a GPU with the installed libraries.

    Those for the smallest batches come first, and of equal ones those for the shortest texts. The words say
    why others do not fit, with the command that helps.
    """
    build = f"run `vcs-runtime engine build {bundle.root}` on this machine"
    spec = bundle.part(part)
    ours = [engine for engine in bundle.manifest.engines or () if engine.part == part]
    if spec is None or not ours:
        return (), f"bundle {bundle.root} has no TensorRT engine of its {part}: {build}"
    gpu = nvidia.gpu(index)
    required = {
        "made_of": bundle.graph_hash(spec), "gpu": gpu.name, "architecture": gpu.architecture,
        "tensorrt": nvidia.tensorrt_version() or "none", "onnxruntime": import_onnxruntime().__version__,
    }  # fmt: skip
    fits, whys = [], []
    for engine in ours:
        differing = [key for key, value in required.items() if getattr(engine, key) != value]
        if differing:
            difference = ", ".join(
                f"{key} {_short(getattr(engine, key))}, here {_short(required[key])}" for key in differing
            )
            whys.append(f"{engine.model} is for {difference}: {build}")
        elif not _is_trusted(bundle, engine):
            whys.append(
                f"{engine.engine} is machine code that was not made here: if you trust who made it, run "
                f"`vcs-runtime engine trust {bundle.root}`"
            )
        else:
            fits.append(engine)
    fits.sort(key=lambda engine: (engine.rows * engine.tokens, engine.tokens))
    return tuple(fits), "; ".join(whys)


def _short(value: str) -> str:
    """Shorten a hash; an engine that was listed without its GPU has an empty name."""
    return value[:12] if len(value) == _HASH else value or "unknown"


def trust(bundle: Bundle, engine: EngineSpec) -> None:
    """Record that an engine, byte for byte, may be loaded on this machine; raises OSError."""
    mark = _trust_mark(bundle, engine)
    make_folder(mark.parent, 0o700)
    mark.touch()


def speed(bundle: Bundle, engines: Sequence[EngineSpec]) -> float | None:
    """Return the speed of all engines of a part that fit, divided by that of CUDA on the same kind of GPU.

    None: it was not measured here, or the results differ from those of CUDA.
    """
    try:
        return float(json.loads(_speed_mark(bundle, engines).read_text("utf-8"))["times_cuda"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_speed(bundle: Bundle, engines: Sequence[EngineSpec], times_cuda: float | None) -> None:
    """Record the result of `speed`, or forget it for None; raises OSError."""
    mark = _speed_mark(bundle, engines)
    if times_cuda is None:
        mark.unlink(missing_ok=True)
        return
    make_folder(mark.parent, 0o700)
    about = {"times_cuda": times_cuda, "gpu": engines[0].gpu, "engines": [item.model for item in engines]}
    write_whole(mark, json.dumps(about) + "\n")


def describe_speed(bundle: Bundle, times_cuda: float | None) -> str:
    """Describe the result of `speed` in words, with the command that measures it."""
    if times_cuda is None:
        return f"engine not measured yet: run `vcs-runtime engine check {bundle.root}`"
    return f"{times_cuda:.2f} times as fast as CUDA here"


def _trust_mark(bundle: Bundle, engine: EngineSpec) -> Path:
    digests = "".join(bundle.digests((engine.model, engine.engine)))
    return own_folder("trusted") / hashlib.sha256(digests.encode()).hexdigest()


def _is_trusted(bundle: Bundle, engine: EngineSpec) -> bool:
    try:
        return _trust_mark(bundle, engine).exists()
    except PermissionError:
        return False


def _speed_mark(bundle: Bundle, engines: Sequence[EngineSpec]) -> Path:
    # The name of the GPU is among the facts by which engines fit: it is that of this machine.
    facts = sorted(f"{item.gpu}|{''.join(bundle.digests((item.model, item.engine)))}" for item in engines)
    return own_folder("measured") / f"{hashlib.sha256('|'.join(facts).encode()).hexdigest()}.json"


def row_limit(device: Device) -> RowLimit:
    """Return the largest number of rows, by padded length, that an engine of the device takes.

    Without an engine for the length there is no limit.
    """

    def limit(length: int) -> float:
        return max((engine.rows for engine in device.engines if length <= engine.tokens), default=math.inf)

    return limit


def engine_name(bundle: Bundle, spec: EmbedderSpec | LearnedSegmenterSpec, device: Device) -> str:
    """Return what runs a model, as the signature has it: "ort-cpu", or "ort-cuda@1f3a".

    The digits begin the hash of the second graph for CUDA, or of the TensorRT engines, if there are any.
    """
    own = bundle.device_hash(spec, device.provider_name, device.engines)
    return f"{device.provider_name}@{own[:DIGITS]}" if own else device.provider_name


def open_part(
    bundle: Bundle, part: str, device: Device, threads: int | None = None, *,
    spec: EmbedderSpec | LearnedSegmenterSpec | None = None, what: str,
) -> Session | EngineSession:  # fmt: skip
    """Open a model of a bundle on a device that `choose_for` chose; raises BundleError, DeviceError.

    `threads` are of the CPU, None for every core. `spec` None: the settings are the bundle's. `what` names
    the model in errors.
    """
    spec = spec or bundle.part(part)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    if device.engines:
        return EngineSession(bundle, device, what)
    # A learned segmenter in half precision is small: its weights may be kept in both precisions.
    half = part == "embedder" and spec.precision in ("fp16", "fp8")
    return Session(bundle.path(spec.model), device, threads, half=half, what=what)


class EngineSession:
    """The TensorRT engines of one graph, used like a `Session`: the smallest one that fits runs a batch."""

    def __init__(self, bundle: Bundle, device: Device, what: str) -> None:
        """Open the engine for the largest batches; the others are opened when needed."""
        self.device = device
        self._bundle = bundle
        self._what = what
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self.inputs = self._session(device.engines[-1]).inputs

    def run(self, inputs: dict[str, npt.NDArray[Any]], shown: Sequence[str] = ()) -> list[npt.NDArray[Any]]:
        """Return the first output of one batch, as `Session.run`; DeviceError if no engine takes it."""
        rows, tokens = inputs["input_ids"].shape
        for engine in self.device.engines:
            if rows <= engine.rows and tokens <= engine.tokens:
                return self._session(engine).run(inputs)
        raise DeviceError(
            f"{self._what}: no TensorRT engine takes {rows} x {tokens} tokens: `vcs-runtime engine build "
            f"{self._bundle.root}` builds one that does"
        )

    def show(self, value: str, check: Callable[[Any], None]) -> None:
        """Refuse: a built engine has the outputs that it was built with. Raises DeviceError."""
        raise DeviceError("tensorrt: a built engine shows no vectors of tokens; the device cuda does")

    def release(self) -> None:
        """Free the memory of all sessions, as `Session.release`."""
        for session in list(self._sessions.values()):
            session.release()

    def close(self) -> None:
        """Close all sessions, as `Session.close`."""
        for session in list(self._sessions.values()):
            session.close()

    def _session(self, engine: EngineSpec) -> Session:
        with self._lock:
            if (session := self._sessions.get(engine.model)) is None:
                path = self._bundle.path(engine.model)
                session = self._sessions[engine.model] = Session(path, self.device, what=self._what)
            return session
