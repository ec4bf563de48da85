"""TensorRT engines of a bundle: which of them fits this machine, and running them.

An engine is made ahead of time (`vcs-runtime engine build`) for one architecture of GPU and by one version
of TensorRT; nothing is made when a model is opened. `bundle.json` says what each was made of and for. An
engine is machine code, which nothing else in a bundle is: it is loaded where it was made, or where someone
said with `vcs-runtime engine trust` that they trust who made it. What remembers this is a file in `home()`.

An engine takes batches up to a size. It has one range of shapes: ONNX Runtime builds several into an engine
and then never leaves the first (https://github.com/microsoft/onnxruntime/pull/31624), and one range holds
memory for its largest batch. A bundle may have several engines of one graph; each has the weights once more.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from vcs_runtime.bundle.manifest import EmbedderSpec, EngineSpec, LearnedSegmenterSpec
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.bundle.paths import home
from vcs_runtime.errors import BundleError, DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.batching import RowLimit
from vcs_runtime.inference.device import (
    Device,
    choose_device,
    cuda_of,
    import_onnxruntime,
    missing_libraries,
)
from vcs_runtime.inference.session import Session

_LOG = logging.getLogger("vcs_runtime")


def choose_for(bundle: Bundle, part: str, device: str, gpu_mem_gb: float | None = None) -> Device:
    """`device.choose_device` for a model of a bundle: "auto" takes a TensorRT engine that fits, else CUDA,
    else the CPU; "tensorrt:N" wants an engine that fits.

    Raises ValueError, DeviceError; the latter says what does not fit, and the command that mends it.
    """
    chosen = choose_device(device, gpu_mem_gb)
    if chosen.is_gpu and (hindrance := lacks_fp8(bundle, part, chosen.index)):
        if device != "auto":
            raise DeviceError(f"{device}: {hindrance}")
        return replace(choose_device("cpu"), reason=f"auto: {hindrance}")
    if chosen.provider_name == "ort-tensorrt":
        found, why = fitting(bundle, part, chosen.index)
        if not found:
            raise DeviceError(f"{device}: {why}")
        return replace(chosen, engines=found)
    if device == "auto" and chosen.provider_name == "ort-cuda":
        lacking = missing_libraries(tensorrt=True)
        found, why = ((), "TensorRT is not there") if lacking else fitting(bundle, part, chosen.index)
        if found:
            tensorrt = choose_device(f"tensorrt:{chosen.index}", gpu_mem_gb)
            reason = f"auto: the bundle has a TensorRT engine for {found[0].architecture}"
            return replace(tensorrt, engines=found, reason=reason)
        return replace(chosen, reason=f"{chosen.reason}; no TensorRT engine: {why}")
    return chosen


def lacks_fp8(bundle: Bundle, part: str, index: int) -> str:
    """Why the GPU `index` cannot run a part of the bundle that is in FP8; "" if it can, or needs not."""
    spec = bundle.part(part)
    if spec is None or spec.precision != "fp8" or (gpu := nvidia.gpu(index)).has_fp8:
        return ""
    return (
        f"{spec.name} is in FP8, which needs a GPU of compute capability 8.9 or later (Ada, Hopper, "
        f"Blackwell), and {gpu.name} is {gpu.architecture}: export it with `--precision fp16` for this one"
    )


def fitting(bundle: Bundle, part: str, index: int) -> tuple[tuple[EngineSpec, ...], str]:
    """The engines of a part of the bundle that run on the GPU `index` with the libraries that are there,
    those for the smallest batches first; and, where there are none, why, with the command that mends it."""
    build = f"run `vcs-runtime engine build {bundle.root}` on this machine"
    spec = bundle.part(part)
    ours = [engine for engine in bundle.manifest.engines or () if engine.part == part]
    if spec is None or not ours:
        return (), f"bundle {bundle.root} has no TensorRT engine of its {part}: {build}"
    wanted = {
        "made_of": bundle.graph_hash(spec),
        "architecture": nvidia.gpu(index).architecture,
        "tensorrt": nvidia.tensorrt_version() or "none",
        "onnxruntime": import_onnxruntime().__version__,
    }
    whys = []
    good = []
    for engine in ours:
        differing = [key for key, value in wanted.items() if getattr(engine, key) != value]
        if differing:
            told = ", ".join(
                f"{key} {getattr(engine, key)[:12]}, here {wanted[key][:12]}" for key in differing
            )
            whys.append(f"{engine.model} is for {told}: {build}")
        elif not is_trusted(bundle, engine):
            whys.append(
                f"{engine.engine} is machine code that was not made here: if you trust who made it, run "
                f"`vcs-runtime engine trust {bundle.root}`"
            )
        else:
            good.append(engine)
    return tuple(sorted(good, key=lambda engine: engine.rows * engine.tokens)), "; ".join(whys)


def is_trusted(bundle: Bundle, engine: EngineSpec) -> bool:
    """Whether an engine, byte for byte, was made on this machine or is trusted here."""
    return _mark(bundle, engine).exists()


def trust(bundle: Bundle, engine: EngineSpec) -> None:
    """Remember that an engine may be loaded on this machine. Raises OSError."""
    mark = _mark(bundle, engine)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _mark(bundle: Bundle, engine: EngineSpec) -> Path:
    digests = "".join(bundle.digests((engine.model, engine.engine)))
    return home() / "trusted" / hashlib.sha256(digests.encode()).hexdigest()


def row_limit(device: Device) -> RowLimit:
    """How many rows of a padded length a batch may have for an engine of the device to take it.

    Where none would, and without engines, as many as there are.
    """

    def limit(length: int) -> float:
        return max((engine.rows for engine in device.engines if length <= engine.tokens), default=math.inf)

    return limit


def open_part(
    bundle: Bundle,
    part: str,
    device: Device,
    threads: int | None = None,
    *,
    spec: EmbedderSpec | LearnedSegmenterSpec | None = None,
    what: str,
) -> Session | EngineSession:
    """Open the model of a bundle's part ("embedder", "segmenter") on a device; `what` names it in errors.

    spec  the part's settings, where they are not the bundle's. Raises BundleError, DeviceError.
    """
    spec = spec or bundle.part(part)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    if device.engines:
        return EngineSession(bundle, bundle.path(spec.model), device, what)
    # A boundary model in half precision is small: its weights may be kept in both.
    half = part == "embedder" and spec.precision in ("fp16", "fp8")
    return Session(bundle.path(spec.model), device, threads, half=half, what=what)


class EngineSession:
    """The engines of one graph behind the face of a `Session`: each batch goes to the smallest that takes it.

    A batch that none takes goes to the CUDA provider and the graph itself, with the weights once more; that
    is said once, as a warning of the logger "vcs_runtime".
    """

    def __init__(self, bundle: Bundle, model: Path, device: Device, what: str) -> None:
        """Open the engine for the largest batches; others when they are needed. DeviceError, BundleError."""
        self.device = device
        self._bundle = bundle
        self._model = model
        self._what = what
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._warned = False
        self.inputs = self._session(device.engines[-1]).inputs

    def run(self, inputs: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """As `Session.run`."""
        rows, tokens = inputs["input_ids"].shape
        for engine in self.device.engines:
            if rows <= engine.rows and tokens <= engine.tokens:
                return self._session(engine).run(inputs)
        self._warn(rows, tokens)
        return self._session(None).run(inputs)

    def release(self) -> None:
        """As `Session.release`."""
        for session in list(self._sessions.values()):
            session.release()

    def close(self) -> None:
        """As `Session.close`."""
        for session in list(self._sessions.values()):
            session.close()

    def _session(self, engine: EngineSpec | None) -> Session:
        """The session of an engine, or of the graph itself on CUDA."""
        path = self._bundle.path(engine.model) if engine else self._model
        device = self.device if engine else cuda_of(self.device)
        with self._lock:
            if (session := self._sessions.get(str(path))) is None:
                session = self._sessions[str(path)] = Session(path, device, what=self._what)
            return session

    def _warn(self, rows: int, tokens: int) -> None:
        if self._warned:
            return
        self._warned = True
        largest = self.device.engines[-1]
        _LOG.warning(
            "%s: a batch of %d x %d tokens is beyond the TensorRT engine's %d x %d: such batches go to the "
            "CUDA provider, which takes the weights' memory once more",
            self._what, rows, tokens, largest.rows, largest.tokens,
        )  # fmt: skip
