"""Choosing devices for a bundle's models, and finding the TensorRT engines that fit them.

An engine is built ahead of time (`vcs-runtime engine build`), with or without a GPU, and fits one
release of TensorRT. It holds machine code. So it is no part of a bundle: it lies in `home()`, in a
folder named by what it was built from and for, where no other user can write.

A model has one engine, with a profile for each range of shapes. The weights stand in it once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from vcs_runtime.bundle.layouts import padded_length
from vcs_runtime.bundle.manifest import EmbedderSpec, LearnedSegmenterSpec
from vcs_runtime.bundle.opening import DIGITS, Bundle
from vcs_runtime.bundle.paths import own_folder
from vcs_runtime.errors import BundleError, DeviceError, VcsError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.batching import RowLimit, width_step
from vcs_runtime.inference.device import TENSORRT, Device, choose_device
from vcs_runtime.inference.rtx_session import Engine, release, targets, unfit
from vcs_runtime.inference.session import Session
from vcs_runtime.util.atomic import write_whole

Spec = EmbedderSpec | LearnedSegmenterSpec
# Times as fast as CUDA, from which on "auto" prefers engines: less is within the noise.
_FASTER = 1.05
#: The engine in its folder, and the file that describes it.
PLAN: Final = "engine.plan"
_RECORD = "engine.json"
# Tokens in a row of an embedder's profiles beside that for the longest input. A job of VCS has a
# few documents of hundreds of tokens, and thousands of chunks of about 26.
_WIDTHS = (64, 1024)
_PLACES = 32768  # rows x tokens: the largest batch that the runtime makes for an engine
_STEP = 16  # windows of a learned segmenter are padded to a multiple of it


def choose_for(
    bundle: Bundle,
    part: str,
    device: str,
    gpu_memory_gb: float | None = None,
    batch_invariant: bool = False,
) -> Device:
    """Choose the device for the "embedder" or "segmenter" of a bundle, with the engine that fits.

    "auto" takes a TensorRT engine that fits and was measured here to be faster than CUDA, otherwise
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
            f"{device}: {spec.name} is in bf16, for which ONNX Runtime has only GPU kernels: use a"
            " GPU or openvino, or export it with `--precision fp16` or `fp32`"
        )
    if problem := chosen.is_gpu and _unfit(bundle, part, chosen):
        if device != "auto":
            raise DeviceError(f"{device}: {problem}")
        return replace(choose_device("cpu"), reason=f"auto: {problem}")
    if chosen.provider == TENSORRT:
        found = fitting(bundle, part, chosen.index)
        if found.engine is None:
            raise DeviceError(f"{device}: {found.words}")
        return replace(chosen, engine=found.engine)
    if device == "auto" and chosen.provider_name == "ort-cuda":
        found = fitting(bundle, part, chosen.index)
        if found.times_cuda >= _FASTER:
            tensorrt = choose_device(f"tensorrt:{chosen.index}", gpu_memory_gb)
            reason = f"auto: TensorRT engine, {found.words}"
            return replace(tensorrt, engine=found.engine, reason=reason)
        return replace(chosen, reason=f"{chosen.reason}; TensorRT is not used: {found.words}")
    return chosen


def _unfit(bundle: Bundle, part: str, device: Device) -> str:
    """Return why a GPU should not run a part of the bundle, or ""."""
    spec = bundle.part(part)
    if spec and device.provider == TENSORRT:
        return graph_problem(spec)
    if not isinstance(spec, EmbedderSpec):
        if spec is None or spec.precision != "int8":
            return ""
        # It takes the range of each input when it runs, and multiplies integers.
        return (
            f"the learned segmenter {spec.name} is in int8, for which ONNX Runtime has only CPU"
            " kernels: export it with `--precision fp16` for a GPU"
        )
    # Its other graph would take ten times as long as fp16 does.
    if not spec.cuda and spec.precision == "int8":
        return f"{spec.name} is in int8 and has no graph for CUDA: export it again, or use default"
    return ""


def graph_problem(spec: Spec) -> str:
    """Return why no engine can be built of a model, as far as its settings tell, or "".

    The rest is said by TensorRT's own parser when an engine is built.
    """
    if isinstance(spec, EmbedderSpec) and spec.layout != "padded":
        return (
            f"{spec.name} is a decoder, whose graphs have operators that TensorRT lacks: use cuda:N"
        )
    if spec.precision not in ("fp32", "fp16"):
        return (
            f"engines are built from graphs in fp32 or fp16, but {spec.name} is in"
            f" {spec.precision}: export it as fp16, or use cuda:N"
        )
    return ""


def profiles_of(spec: Spec) -> tuple[tuple[int, int], ...]:
    """Return rows and tokens of each profile's largest batch, shortest texts first."""
    if isinstance(spec, EmbedderSpec):
        longest = padded_length(spec.max_tokens, width_step("tensorrt", spec.max_tokens))
        widths = {longest, *(min(width, longest) for width in _WIDTHS)}
    else:
        widths = {padded_length(spec.max_tokens, _STEP)}
    return tuple((_PLACES // width, width) for width in sorted(widths))


class Fitting(NamedTuple):
    """The TensorRT engine of a part for a GPU and the installed release."""

    engine: Engine | None
    times_cuda: float  # its measured speed; 0 if it was not measured on such a GPU
    words: str  # how fast it is, or the command that helps


def engine_folder(bundle: Bundle, spec: Spec, index: int = 0) -> Path:
    """Return the folder of a model's engine, which need not exist.

    Raises BundleError without a home, PermissionError where others can write, MissingExtraError.
    """
    key = [bundle.graph_hash(spec), release(), targets(index), profiles_of(spec)]
    return own_folder("engines", hashlib.sha256(json.dumps(key).encode()).hexdigest())


def fitting(bundle: Bundle, part: str, index: int) -> Fitting:
    """Find the engine of a part."""
    spec = bundle.part(part)
    if spec is None:
        return Fitting(None, 0, f"bundle {bundle.root}: it holds no {part}")
    try:
        problem = unfit(index)
        folder = engine_folder(bundle, spec, index)
    except (VcsError, OSError) as error:
        problem = str(error)
    if problem:
        return Fitting(None, 0, problem)
    try:
        record = json.loads((folder / _RECORD).read_text("utf-8"))
        engine = Engine(folder / PLAN, record["sha256"], profiles_of(spec))
        times_cuda = float(record["times_cuda"].get(nvidia.gpu(index).name, 0))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        command = f"run `vcs-runtime engine build {bundle.root}`"
        return Fitting(None, 0, f"there is no engine of its {part} by {release()}: {command}")
    words = f"{times_cuda:.2f} times as fast as CUDA here"
    if not times_cuda:
        words = f"not measured on this GPU: run `vcs-runtime engine check {bundle.root}`"
    return Fitting(engine, times_cuda, words)


def record(folder: Path, sha256: str, times_cuda: Mapping[str, float]) -> None:
    """Record an engine in its folder, and how fast it is on which GPUs; raises OSError."""
    content = {"sha256": sha256, "times_cuda": dict(times_cuda)}
    write_whole(folder / _RECORD, json.dumps(content) + "\n")


def row_limit(device: Device) -> RowLimit:
    """Return a function that maps a padded length to the most rows that a profile takes.

    The function returns infinity if no profile takes the length.
    """
    profiles = device.engine.profiles if device.engine else ()
    return lambda length: max(
        (rows for rows, tokens in profiles if length <= tokens), default=math.inf
    )


def own_hash(bundle: Bundle, spec: Spec, device: Device) -> str | None:
    """Return the hash of what only this device runs: a TensorRT engine, or the graph for CUDA."""
    if device.engine:
        return device.engine.sha256
    return bundle.cuda_hash(spec) if device.provider_name == "ort-cuda" else None


def engine_name(bundle: Bundle, spec: Spec, device: Device) -> str:
    """Return what runs a model, as the signature has it: "ort-cpu", or "ort-cuda@1f3a".

    The digits begin the hash of what only this device runs, if there is anything.
    """
    own = own_hash(bundle, spec, device)
    return f"{device.provider_name}@{own[:DIGITS]}" if own else device.provider_name


def open_part(
    bundle: Bundle,
    part: str,
    device: Device,
    threads: int | None = None,
    *,
    spec: Spec | None = None,
    what: str,
) -> Session:
    """Open a model of a bundle on a device from `choose_for`.

    Raises BundleError or DeviceError.

    `threads` are of the CPU, None for every core. `spec` None: the settings are the bundle's.
    `what` names the model in errors.
    """
    spec = spec or bundle.part(part)
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no {part}")
    # A learned segmenter in half precision is small: its weights may be kept in both precisions.
    half = part == "embedder" and spec.precision == "fp16"
    return Session(bundle.path(spec.model), device, threads, half=half, what=what)
