"""Choosing devices for a bundle's models, and finding and running fitting TensorRT engines.

An engine is built ahead of time (`vcs-runtime engine build`) for one kind of GPU and by one version
of TensorRT. Nothing is built when a model is opened. An engine is machine code. So it is no part of
a bundle: it lies in `home()`, in a folder named by what it was built from and for, where no other
user can write.

An engine takes batches up to a size. It has one range of shapes, which holds memory for its largest
batch: ONNX Runtime would never leave the first of several
(https://github.com/microsoft/onnxruntime/pull/31624). A model has several engines, and each holds
the weights again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from vcs_runtime.bundle.manifest import EmbedderSpec, LearnedSegmenterSpec
from vcs_runtime.bundle.opening import DIGITS, Bundle
from vcs_runtime.bundle.paths import own_folder
from vcs_runtime.errors import BundleError, DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.batching import RowLimit
from vcs_runtime.inference.device import (
    Device,
    Engine,
    choose_device,
    import_onnxruntime,
    missing_libraries,
)
from vcs_runtime.inference.session import Session
from vcs_runtime.util.atomic import write_whole

# Times as fast as CUDA, from which on "auto" prefers engines: less is within the noise.
_FASTER = 1.05
#: The file that lists the engines of a folder, with their sha256 and what was measured.
ENGINES: Final = "engines.json"


def choose_for(
    bundle: Bundle,
    part: str,
    device: str,
    gpu_memory_gb: float | None = None,
    batch_invariant: bool = False,
) -> Device:
    """Choose the device for the "embedder" or "segmenter" of a bundle, with the engines that fit.

    "auto" takes TensorRT engines that fit and were measured here to be faster than CUDA, otherwise
    CUDA, otherwise the CPU. A DeviceError names the command that helps; ValueError: there is no
    such device.
    """
    chosen = _choose(bundle, part, device, gpu_memory_gb)
    return replace(chosen, batch_invariant=batch_invariant and chosen.is_gpu)


def _choose(bundle: Bundle, part: str, device: str, gpu_memory_gb: float | None) -> Device:
    chosen = choose_device(device, gpu_memory_gb)
    spec = bundle.part(part)
    if spec and spec.precision == "bf16" and chosen.provider_name == "ort-cpu":
        raise DeviceError(
            f"{device}: {spec.name} is in bf16, for which ONNX Runtime has kernels on a GPU only:"
            " use a GPU or openvino, or export it with `--precision fp16` or `fp32`"
        )
    if hindrance := chosen.is_gpu and _hindrance(bundle, part, chosen):
        if device != "auto":
            raise DeviceError(f"{device}: {hindrance}")
        return replace(choose_device("cpu"), reason=f"auto: {hindrance}")
    if chosen.provider_name == "ort-tensorrt":
        found = fitting(bundle, part, chosen.index)
        if not found.engines:
            raise DeviceError(f"{device}: {found.words}")
        return replace(chosen, engines=found.engines)
    if device == "auto" and chosen.provider_name == "ort-cuda":
        if missing_libraries(tensorrt=True):
            return replace(
                chosen, reason=f"{chosen.reason}; TensorRT is not used: it is not installed"
            )
        found = fitting(bundle, part, chosen.index)
        if found.times_cuda >= _FASTER:
            tensorrt = choose_device(f"tensorrt:{chosen.index}", gpu_memory_gb)
            return replace(
                tensorrt, engines=found.engines, reason=f"auto: TensorRT engine, {found.words}"
            )
        return replace(chosen, reason=f"{chosen.reason}; TensorRT is not used: {found.words}")
    return chosen


def _hindrance(bundle: Bundle, part: str, device: Device) -> str:
    """Return why a GPU should not run a part of the bundle, or ""."""
    spec = bundle.part(part)
    if not isinstance(spec, EmbedderSpec):
        if spec is None or spec.precision != "int8":
            return ""
        # It takes the range of each input when it runs, and multiplies integers.
        return (
            f"the learned segmenter {spec.name} is in int8, for which ONNX Runtime has kernels on"
            " the CPU only: export it with `--precision fp16` for a GPU"
        )
    if spec.layout == "packed" and device.provider_name == "ort-tensorrt":
        return f"{spec.name} is a decoder, which CUDA runs without padding: use cuda:{device.index}"
    # Its other graph would take ten times as long as fp16 does.
    if not spec.cuda and spec.layout == "packed" and spec.precision == "int8":
        return f"{spec.name} is in {spec.precision} and has no graph for CUDA: export it again"
    return ""


class Fitting(NamedTuple):
    """The TensorRT engines of a part for a GPU and the installed libraries."""

    engines: tuple[Engine, ...]  # those for the shortest texts come first
    times_cuda: float  # their measured speed
    words: str  # how fast they are; without any, the command that builds them


def engines_folder(bundle: Bundle, part: str, index: int) -> tuple[Path, str]:
    """Return the folder of a part's engines for a GPU, and for what they are, in words.

    The folder need not exist. Raises BundleError without a home, PermissionError where others can
    write.
    """
    spec, gpu = bundle.part(part), nvidia.gpu(index)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    tensorrt, onnxruntime = nvidia.tensorrt_version() or "none", import_onnxruntime().__version__
    place = f"{gpu.name} ({gpu.architecture}), TensorRT {tensorrt}, ONNX Runtime {onnxruntime}"
    key = hashlib.sha256(f"{bundle.graph_hash(spec)}|{place}".encode()).hexdigest()
    return own_folder("engines", key), place


def fitting(bundle: Bundle, part: str, index: int) -> Fitting:
    """Find the engines of a part."""
    try:
        folder, place = engines_folder(bundle, part, index)
    except (BundleError, OSError) as error:
        return Fitting((), 0, str(error))
    try:
        record = json.loads((folder / ENGINES).read_text("utf-8"))
        engines = [
            Engine(folder / f"{rows}x{tokens}.onnx", rows, tokens, sha256)
            for rows, tokens, sha256 in record["engines"]
        ]
        times_cuda = float(record["times_cuda"])
    except (OSError, ValueError, KeyError, TypeError):
        command = f"run `vcs-runtime engine build {bundle.root}`"
        return Fitting((), 0, f"there is no TensorRT engine of its {part} for {place}: {command}")
    return Fitting(tuple(engines), times_cuda, f"{times_cuda:.2f} times as fast as CUDA here")


def record(folder: Path, engines: Sequence[Engine], times_cuda: float) -> None:
    """Record engines in their folder, and how fast they are; raises OSError."""
    listed = [(engine.rows, engine.tokens, engine.sha256) for engine in engines]
    write_whole(folder / ENGINES, json.dumps({"engines": listed, "times_cuda": times_cuda}) + "\n")


def row_limit(device: Device) -> RowLimit:
    """Return a function that maps a padded length to the most rows that an engine takes.

    The function returns infinity if no engine takes the length.
    """
    return lambda length: max(
        (engine.rows for engine in device.engines if length <= engine.tokens), default=math.inf
    )


def engine_name(bundle: Bundle, spec: EmbedderSpec | LearnedSegmenterSpec, device: Device) -> str:
    """Return what runs a model, as the signature has it: "ort-cpu", or "ort-cuda@1f3a".

    The digits begin the hash of the second graph for CUDA, or of the TensorRT engines, if there are
    any.
    """
    own = bundle.device_hash(
        spec, device.provider_name, [engine.sha256 for engine in device.engines]
    )
    return f"{device.provider_name}@{own[:DIGITS]}" if own else device.provider_name


def open_part(
    bundle: Bundle,
    part: str,
    device: Device,
    threads: int | None = None,
    *,
    spec: EmbedderSpec | LearnedSegmenterSpec | None = None,
    what: str,
) -> Session | EngineSession:
    """Open a model of a bundle on a device from `choose_for`.

    Raises BundleError or DeviceError.

    `threads` are of the CPU, None for every core. `spec` None: the settings are the bundle's.
    `what` names the model in errors.
    """
    spec = spec or bundle.part(part)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    if device.engines:
        return EngineSession(device, what)
    # A learned segmenter in half precision is small: its weights may be kept in both precisions.
    half = part == "embedder" and spec.precision == "fp16"
    return Session(bundle.path(spec.model), device, threads, half=half, what=what)


class EngineSession:
    """The TensorRT engines of one graph, used like a `Session`.

    The smallest engine that fits runs a batch.
    """

    def __init__(self, device: Device, what: str) -> None:
        """Open all engines."""
        self.device = device
        self._what = what
        self._sessions = [Session(engine.model, device, what=what) for engine in device.engines]
        self.inputs = self._sessions[-1].inputs

    def run(
        self, inputs: dict[str, npt.NDArray[Any]], shown: Sequence[str] = ()
    ) -> list[npt.NDArray[Any]]:
        """Return the first output of one batch, as `Session.run` does.

        Raises DeviceError if no engine takes the batch.
        """
        rows, tokens = inputs["input_ids"].shape
        for engine, session in zip(self.device.engines, self._sessions, strict=True):
            if rows <= engine.rows and tokens <= engine.tokens:
                return session.run(inputs)
        raise DeviceError(
            f"{self._what}: no TensorRT engine takes {rows} x {tokens} tokens: build them again"
        )

    def show(self, value: str, check: Callable[[Any], None]) -> None:
        """Refuse: a built engine has the outputs that it was built with. Raises DeviceError."""
        raise DeviceError(
            "tensorrt: a built engine shows no vectors of tokens; the device cuda does"
        )

    def release(self) -> None:
        """Free the memory of all sessions, as `Session.release`."""
        for session in self._sessions:
            session.release()

    def close(self) -> None:
        """Close all sessions, as `Session.close`."""
        for session in self._sessions:
            session.close()
