"""Devices and ONNX Runtime sessions: which execution provider runs a model, and never silently another.

`device` is "auto", "cpu", "cuda:N" or "tensorrt:N". A device asked for by name is used or refused
(DeviceError); only "auto" chooses, and `Device.reason` says what it chose and why. Which TensorRT engine of a
bundle runs a model is `vcs_runtime.inference.tensorrt`' matter.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcs_runtime.bundle.manifest import EngineSpec
from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError
from vcs_runtime.inference import nvidia
from vcs_runtime.util.extras import require
from vcs_runtime.util.telemetry import refuse_telemetry

if TYPE_CHECKING:
    import onnxruntime as ort

_TENSORRT = "TensorrtExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
# What ONNX Runtime says where memory does not suffice: its arena, at its limit and where the driver has no
# more; the driver itself; the libraries that take workspace. It has one type of exception for all that fails.
_NO_MEMORY = re.compile(
    r"Failed to allocate memory for requested buffer|smaller than requested bytes|out of memory|bad_alloc"
    r"|cudaMalloc\w* failed|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Device:
    """An execution provider that was chosen.

    engine    its name in the signature: "ort-cpu", "ort-cuda", "ort-tensorrt"
    reason    why it, in words
    index     of the GPU;  memory  bytes that all of its sessions together may take there; None: no limit
    engines   the TensorRT engines that run the model, of a "tensorrt" device
    """

    engine: str
    provider: str
    reason: str
    index: int = 0
    memory: int | None = None
    engines: tuple[EngineSpec, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.provider != _CPU


def import_onnxruntime() -> Any:
    """Import ONNX Runtime; raises MissingExtraError."""
    refuse_telemetry()
    return require("onnxruntime", ("cpu", "gpu"), "running models")


def available_providers() -> list[str]:
    """The execution providers of the installed ONNX Runtime, in its order of preference."""
    return list(import_onnxruntime().get_available_providers())


def available_cores() -> int:
    """The cores that this process may use: what a container or taskset leaves, not what the host has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_device(device: str) -> tuple[str, int]:
    """Kind ("auto", "cpu", "cuda", "tensorrt") and number of a device's name; ValueError if it is none."""
    match = re.fullmatch(r"(auto|cpu|cuda|tensorrt)(?::(\d+))?", device) if isinstance(device, str) else None
    if not match or (match[2] is not None and match[1] in ("auto", "cpu")):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda:N' or 'tensorrt:N', not {device!r}")
    return match[1], int(match[2] or 0)


def choose_device(device: str, gpu_mem_gb: float | None = None) -> Device:
    """Turn a device name into an execution provider; "auto" is CUDA where it can start, else the CPU.

    gpu_mem_gb  GB (10^9 bytes) of a GPU's memory that the models may take; of no meaning on a CPU

    Raises ValueError for a name that is none, DeviceError where ONNX Runtime lacks the provider.
    """
    kind, index = split_device(device)
    memory = _bytes(gpu_mem_gb)
    available = available_providers()
    if kind == "cpu":
        return Device("ort-cpu", _CPU, "named")
    if kind == "auto" and _CUDA not in available:
        return Device("ort-cpu", _CPU, f"auto: the installed ONNX Runtime has no {_CUDA}")
    if kind == "auto" and (hindrance := _hindrance()):
        return Device("ort-cpu", _CPU, f"auto: CUDA cannot start: {hindrance}")
    provider = _TENSORRT if kind == "tensorrt" else _CUDA
    if provider not in available:
        raise DeviceError(
            f"{device}: the installed ONNX Runtime has no {provider} (it has {', '.join(available)}): "
            "install `vcs-runtime[gpu]` in place of `vcs-runtime[cpu]`"
        )
    _preload()
    # Asked here, not when a session is opened: cuDNN is missed no sooner than in the first run.
    if lacking := missing_libraries(tensorrt=kind == "tensorrt"):
        raise DeviceError(f"{device}: the {provider} of ONNX Runtime lacks {lacking}")
    engine = "ort-tensorrt" if kind == "tensorrt" else "ort-cuda"
    return Device(engine, provider, "named" if kind != "auto" else f"auto: {_CUDA} is there", index, memory)


def _hindrance() -> str:
    """Why CUDA, which ONNX Runtime has, cannot start here; "" if it can, as far as libraries tell."""
    _preload()
    if lacking := missing_libraries():
        return f"missing: {lacking}"
    try:
        nvidia.gpu(0)
    except DeviceError as error:
        return str(error)
    return ""


def _bytes(gpu_mem_gb: float | None) -> int | None:
    if gpu_mem_gb is None:
        return None
    number = gpu_mem_gb if isinstance(gpu_mem_gb, int | float) else math.nan
    if isinstance(gpu_mem_gb, bool) or not 0 < number < math.inf:
        raise ValueError(f"gpu_mem_gb must be a number of GB above 0, not {gpu_mem_gb!r}")
    return int(number * 1e9)


def cuda_of(device: Device) -> Device:
    """The CUDA provider of the GPU that `device` is."""
    return replace(device, engine="ort-cuda", provider=_CUDA, engines=())


def missing_libraries(*, tensorrt: bool = False) -> str:
    """What the installed ONNX Runtime needs for a GPU and does not find, with what brings it; else ""."""
    return nvidia.missing(nvidia.cuda_major(import_onnxruntime()), tensorrt=tensorrt)


def _preload() -> None:
    """Load CUDA and cuDNN from NVIDIA's packages, where ONNX Runtime's own loader does not look for them."""
    preload = getattr(import_onnxruntime(), "preload_dlls", None)
    if preload:  # since 1.21
        with contextlib.redirect_stdout(io.StringIO()):  # it prints; `missing_libraries` says it better
            preload()


def provider_options(device: Device) -> list[tuple[str, dict[str, str]]]:
    """The execution providers of a session, as ONNX Runtime takes them.

    CUDA: the arena grows by what is asked of it, not to twice its size, and to no more than `memory`. TF32 is
    off: float32 graphs keep their precision. What is not set is right as it is: `sdpa_kernel` prefers flash
    attention, `do_copy_in_default_stream` must stay on (onnxruntime issue 4829), and CUDA graphs want shapes
    that do not change.
    """
    if device.provider == _CPU:
        return [(_CPU, {})]
    number = str(device.index)
    cuda = {"device_id": number, "arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"}
    if device.memory is not None:
        cuda["gpu_mem_limit"] = str(device.memory)
    if device.provider == _CUDA:
        return [(_CUDA, cuda)]
    # Inputs and outputs of an engine lie in the CUDA provider's memory.
    return [(_TENSORRT, {"device_id": number}), (_CUDA, cuda)]


def open_session(
    model: Path,
    device: Device,
    threads: int | None = None,
    *,
    half: bool = False,
    graph: bytes | None = None,
) -> ort.InferenceSession:
    """Load an ONNX model on `device`; `threads` bounds the CPU threads of one run (default: every core).

    half   the weights are in half precision and many: a CPU computes in single precision, and must not keep
           them in both
    graph  opened in place of the file's own graph; its weights are those beside the file

    Raises DeviceError when the provider does not start, or starts on another device: ONNX Runtime itself
    would go on with the CPU. Raises BundleError for a file that is no model.
    """
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 3  # errors only: its warnings are of no use to who scores
    options.intra_op_num_threads = threads or available_cores()
    # Batches change shape all the time: a plan of the memory per shape would never be used again.
    options.enable_mem_pattern = False
    if device.is_gpu:
        # Weights are allocated at their size, outside of the arena, which would round them up and keep them.
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    elif half:
        # Optimised, the graph would hold its weights in single precision, twice the checkpoint. As it is,
        # each is widened just before it is used, and that memory is given back after.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
    if graph is not None:
        folder = os.fspath(model.parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    source = os.fspath(model) if graph is None else graph
    try:
        session = ort.InferenceSession(
            source, options, providers=provider_options(device), enable_fallback=False
        )
    except Exception as error:  # ONNX Runtime's own exception types share no base class but Exception
        if _NO_MEMORY.search(str(error)):
            # Not a DeviceMemoryError: smaller batches would not help.
            raise DeviceError(f"{device.engine}: memory does not suffice for {model}: {error}") from None
        if device.is_gpu:
            raise DeviceError(
                f"{device.engine}: ONNX Runtime could not start {device.provider}: {error}{_lacking(device)}"
            ) from None
        raise BundleError(f"{model}: ONNX Runtime cannot load it: {error}") from None
    if device.provider not in session.get_providers():
        raise DeviceError(
            f"{device.engine}: ONNX Runtime fell back to {', '.join(session.get_providers())}; its "
            f"{device.provider} is installed, but a library it needs is not{_lacking(device)}"
        )
    return session


def _lacking(device: Device) -> str:
    major = nvidia.cuda_major(import_onnxruntime())
    lacking = nvidia.missing(major, tensorrt=device.provider == _TENSORRT)
    return f"; missing: {lacking}" if lacking else ""


def run_session(
    session: ort.InferenceSession, outputs: Sequence[str], inputs: dict[str, Any], *, shrink: bool = False
) -> list[Any]:
    """Run one batch; what ONNX Runtime raises becomes a DeviceError with the shapes that were given: a
    DeviceMemoryError where memory did not suffice.

    On a GPU inputs and outputs are bound to its memory: each crosses the bus once, and nothing waits for it
    in between. (Inputs have some hundred kilobytes: pinned memory would save microseconds.)

    shrink  on a GPU: give back what the arena holds and this run did not use
    """
    options = import_onnxruntime().RunOptions()
    options.log_severity_level = 4  # what goes wrong is in the exception, once
    try:
        # A session of TensorRT has the CUDA provider too.
        if _CUDA in session.get_providers():
            index = int(session.get_provider_options()[_CUDA]["device_id"])
            if shrink:
                options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{index}")
            return run_bound(session, outputs, inputs, options, "cuda", index)
        return list(session.run(list(outputs), inputs, options))
    except Exception as error:  # see open_session
        shapes = ", ".join(f"{name} {array.shape}" for name, array in inputs.items())
        kind = DeviceMemoryError if _NO_MEMORY.search(str(error)) else DeviceError
        raise kind(f"ONNX Runtime failed on {shapes}: {error}") from None


def run_bound(
    session: ort.InferenceSession,
    outputs: Sequence[str],
    inputs: dict[str, Any],
    options: Any,
    kind: str,
    index: int,
) -> list[Any]:
    """Run with inputs and outputs in the memory of the device `kind` ("cuda", "cpu") number `index`."""
    ort = import_onnxruntime()
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, kind, index))
    for name in outputs:
        binding.bind_output(name, kind, index)
    session.run_with_iobinding(binding, options)
    return list(binding.copy_outputs_to_cpu())
