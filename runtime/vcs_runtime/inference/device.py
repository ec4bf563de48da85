"""Devices and ONNX Runtime sessions: which execution provider runs a model, and never silently another.

`device` is "auto", "cpu", "cuda:N" or "tensorrt:N", and `each_device` says which of them "cuda:all" means.
A device asked for by name is used or refused (DeviceError). Only "auto" chooses, and `Device.reason` says
what it chose and why. The module `vcs_runtime.inference.tensorrt` chooses among the TensorRT engines of a
bundle.
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
from typing import TYPE_CHECKING, Any, Final

from vcs_runtime.bundle.manifest import EngineSpec
from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.placement import RECORD, refuse_cpu_work
from vcs_runtime.util import process
from vcs_runtime.util.extras import require
from vcs_runtime.util.telemetry import refuse_telemetry

if TYPE_CHECKING:
    import onnxruntime as ort

_TENSORRT = "TensorrtExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
_ERRORS = 3  # ONNX Runtime's severity of errors: its warnings are of no use to users
# Messages of ONNX Runtime when memory does not suffice: from its arena, from the driver, and from libraries
# that take workspace. It has one type of exception for all failures.
_NO_MEMORY = re.compile(
    r"Failed to allocate memory for requested buffer|smaller than requested bytes|out of memory|bad_alloc"
    r"|cudaMalloc\w* failed|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
    re.IGNORECASE,
)
# Earlier graphs compute the length of a vector by an operator that needs cuDNN.
_NEEDS_CUDNN = (
    "; this graph needs cuDNN, and newer ones do not: build the bundle again (`vcs-runtime export`, or "
    "`vcs-runtime fetch default --overwrite`), or install NVIDIA's cuDNN 9"
)


@dataclass(frozen=True)
class Device:
    """An execution provider that was chosen.

    Attributes
    ----------
    provider_name
        Name of the provider in the signature: "ort-cpu", "ort-cuda" or "ort-tensorrt".
    provider
        Name of the provider in ONNX Runtime.
    reason
        Why it was chosen, in words.
    index
        Number of the GPU.
    memory
        Bytes that all sessions together may take on the GPU. None: no limit.
    engines
        TensorRT engines that run the model, for a "tensorrt" device.
    batch_invariant
        Whether all batches have fixed shapes (`inference.invariant`). Only on a GPU.
    """

    provider_name: str
    provider: str
    reason: str
    index: int = 0
    memory: int | None = None
    engines: tuple[EngineSpec, ...] = ()
    batch_invariant: bool = False

    @property
    def is_gpu(self) -> bool:
        """Whether models run on a GPU."""
        return self.provider != _CPU


def import_onnxruntime() -> Any:
    """Import ONNX Runtime; raises MissingExtraError.

    In a process of the command line, ONNX Runtime's log is limited to errors. Elsewhere it is the caller's.
    """
    refuse_telemetry()
    ort = require("onnxruntime", ("cpu", "gpu"), "running models")
    if process.is_command:
        ort.set_default_logger_severity(_ERRORS)
    return ort


def available_providers() -> list[str]:
    """Return the execution providers of the installed ONNX Runtime, in its order of preference."""
    return list(import_onnxruntime().get_available_providers())


def split_device(device: str) -> tuple[str, int]:
    """Split the name of a device into its kind and its number; raises ValueError for another name."""
    match = re.fullmatch(r"(auto|cpu|cuda|tensorrt)(?::(\d+))?", device) if isinstance(device, str) else None
    if not match or (match[2] is not None and match[1] in ("auto", "cpu")):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda:N' or 'tensorrt:N', not {device!r}")
    return match[1], int(match[2] or 0)


def each_device(device: str) -> list[str]:
    """Return the names of the devices that "cuda:all" means, or the one name alone.

    Raises DeviceError, which says what is missing, if "cuda:all" means none.
    """
    if device != "cuda:all":
        return [device]
    if not (count := nvidia.gpu_count()):
        choose_device("cuda:0")
        nvidia.gpu(0)
    return [f"cuda:{index}" for index in range(count)]


def check_device(device: str, gpu_mem_gb: float | None = None) -> None:
    """Raise what a scorer on this device would raise before it looks at a GPU; errors as `choose_device`."""
    choose_device("cuda:0" if device == "cuda:all" else device, gpu_mem_gb)


def choose_device(device: str, gpu_mem_gb: float | None = None) -> Device:
    """Choose the execution provider for a device name; "auto" is CUDA if it can start, otherwise the CPU.

    Parameters
    ----------
    device
        "auto", "cpu", "cuda:N" or "tensorrt:N".
    gpu_mem_gb
        GB (10^9 bytes) of a GPU's memory that the models may take. It has no meaning on a CPU.

    Returns
    -------
    Device
        The provider, and why it was chosen.

    Raises
    ------
    ValueError
        `device` is not the name of a device, or `gpu_mem_gb` is not a number above 0.
    DeviceError
        ONNX Runtime lacks the provider, or the provider lacks a library.
    MissingExtraError
        ONNX Runtime is not installed.
    """
    kind, index = split_device(device)
    memory = _bytes(gpu_mem_gb)
    available = available_providers()
    if kind == "cpu":
        return Device("ort-cpu", _CPU, "named")
    if kind == "auto" and _CUDA not in available:
        return Device("ort-cpu", _CPU, f"auto: the installed ONNX Runtime has no {_CUDA}")
    if kind == "auto" and (hindrance := _cuda_hindrance()):
        return Device("ort-cpu", _CPU, f"auto: CUDA cannot start: {hindrance}")
    provider = _TENSORRT if kind == "tensorrt" else _CUDA
    if provider not in available:
        raise DeviceError(
            f"{device}: the installed ONNX Runtime has no {provider} (it has {', '.join(available)}): "
            "install `vcs-runtime[gpu]` in place of `vcs-runtime[cpu]`"
        )
    _preload()
    if lacking := missing_libraries(tensorrt=kind == "tensorrt"):
        raise DeviceError(f"{device}: the {provider} of ONNX Runtime lacks {lacking}")
    name = "ort-tensorrt" if kind == "tensorrt" else "ort-cuda"
    return Device(name, provider, "named" if kind != "auto" else f"auto: {_CUDA} is there", index, memory)


#: How the description begins of a device that "auto" has chosen although there is a GPU.
UNUSED_GPU: Final = "the GPU is not used: "


def describe(device: Device) -> str:
    """Describe a device and why it was chosen, and say if "auto" leaves a GPU of this machine unused."""
    unused = device.reason.startswith("auto") and not device.is_gpu and nvidia.gpu_is_there()
    return f"{UNUSED_GPU if unused else ''}{device.provider_name} ({device.reason})"


def _cuda_hindrance() -> str:
    """Return why the CUDA provider cannot start here, or ""."""
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
    if isinstance(gpu_mem_gb, bool) or not 0 < number < 1e6:  # its bytes fit into 64 bits
        raise ValueError(f"gpu_mem_gb must be a number of GB above 0 and below 10^6, not {gpu_mem_gb!r}")
    return int(number * 1e9)


def cuda_of(device: Device) -> Device:
    """Return the CUDA provider of the same GPU."""
    return replace(device, provider_name="ort-cuda", provider=_CUDA, engines=())


def missing_libraries(*, tensorrt: bool = False) -> str:
    """Return the libraries that ONNX Runtime needs for a GPU and does not find, and their packages, or ""."""
    return nvidia.missing(import_onnxruntime(), tensorrt=tensorrt)


def _preload() -> None:
    """Load CUDA and cuDNN from NVIDIA's packages, where ONNX Runtime's own loader does not look for them."""
    preload = getattr(import_onnxruntime(), "preload_dlls", None)
    if preload:  # since 1.21
        with contextlib.redirect_stdout(io.StringIO()):  # it prints; `missing_libraries` has a better message
            preload()


def provider_options(device: Device) -> list[tuple[str, dict[str, str]]]:
    """Return the execution providers of a session, and their options, as ONNX Runtime takes them.

    The CUDA arena doubles, up to `device.memory`. If it grew by the size of each request instead, batches of
    many shapes would leave pieces that fit no other batch, and it would take twice the memory
    (docs/benchmarks/gpu.md). TF32 is off, so that float32 graphs keep their precision. Other options keep
    their defaults: `sdpa_kernel` prefers flash attention, `do_copy_in_default_stream` must stay on
    (onnxruntime issue 4829), and CUDA graphs need shapes that do not change.
    """
    if device.provider == _CPU:
        return [(_CPU, {})]
    # GPU 0 is the default. If it is named, ONNX Runtime from 1.26 on first looks for a provider that was
    # registered as a plugin, and warns on standard error that there is none.
    number = {"device_id": str(device.index)} if device.index else {}
    cuda = {**number, "arena_extend_strategy": "kNextPowerOfTwo", "use_tf32": "0"}
    if device.memory is not None:
        cuda["gpu_mem_limit"] = str(device.memory)
    if device.provider == _CUDA:
        return [(_CUDA, cuda)]
    # Inputs and outputs of an engine lie in the CUDA provider's memory.
    return [(_TENSORRT, number), (_CUDA, cuda)]


def open_session(
    model: Path,
    device: Device,
    threads: int | None = None,
    *,
    half: bool = False,
    graph: bytes | None = None,
) -> ort.InferenceSession:
    """Load an ONNX model on a device.

    Parameters
    ----------
    model
        File of the graph; its weights are beside it.
    device
        Execution provider that runs the model.
    threads
        Largest number of CPU threads of one run. None: every core.
    half
        Whether the weights are large and in half precision. A CPU computes in single precision, and must not
        keep them in both.
    graph
        Bytes of a graph that is opened in place of the file's own.

    Returns
    -------
    onnxruntime.InferenceSession
        The session.

    Raises
    ------
    DeviceError
        The provider does not start, or the CPU would run the graph or nodes of it, with which ONNX Runtime
        would go on.
    BundleError
        The file is not a model.
    """
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS
    options.intra_op_num_threads = process.threads_or_cores(threads)
    # Batches change shape all the time: a memory plan per shape would never be used again.
    options.enable_mem_pattern = False
    if device.is_gpu:
        # Weights are allocated at their size, outside the arena, which would round them up and keep them.
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        options.add_session_config_entry(*RECORD)
        # The kernel of what this makes of attention in SaT asks for cuDNN: 517 MB that nothing else needs.
        options.add_session_config_entry("optimization.disable_specified_optimizers", "BiasSoftmaxFusion")
    elif half:
        # An optimised graph would hold its weights in single precision, twice the checkpoint. Without
        # optimisation, each tensor is widened just before it is used, and its memory is freed after that.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
    if graph is not None:
        folder = os.fspath(model.parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    source = os.fspath(model) if graph is None else graph
    name = device.provider_name
    try:
        session = ort.InferenceSession(
            source, options, providers=provider_options(device), enable_fallback=False
        )
    except Exception as error:  # ONNX Runtime's own exception types share no base class but Exception
        if _NO_MEMORY.search(str(error)):
            # Not a DeviceMemoryError: smaller batches would not help.
            raise DeviceError(f"{name}: memory does not suffice for {model}: {error}") from None
        if device.is_gpu:
            raise DeviceError(
                f"{name}: ONNX Runtime could not start {device.provider}: {error}{_lacking(device)}"
            ) from None
        raise BundleError(f"{model}: ONNX Runtime cannot load it: {error}") from None
    if device.provider not in session.get_providers():
        raise DeviceError(
            f"{name}: ONNX Runtime fell back to {', '.join(session.get_providers())}; its "
            f"{device.provider} is installed, but a library it needs is not{_lacking(device)}"
        )
    if device.is_gpu:
        refuse_cpu_work(session, name, model)
    return session


def _lacking(device: Device) -> str:
    lacking = nvidia.missing(import_onnxruntime(), tensorrt=device.provider == _TENSORRT)
    return f"; missing: {lacking}" if lacking else ""


def run_session(
    session: ort.InferenceSession, outputs: Sequence[str], inputs: dict[str, Any], *, shrink: bool = False
) -> list[Any]:
    """Run one batch and return its outputs.

    On a GPU, inputs and outputs are bound to its memory: each crosses the bus once, and nothing waits for it
    in between. Inputs have some hundred kilobytes, so that pinned memory would save microseconds only.

    Parameters
    ----------
    session
        Session of the model.
    outputs
        Names of the outputs to return.
    inputs
        Arrays by the names of the inputs.
    shrink
        Whether a GPU frees memory of the arena that this run did not use.

    Returns
    -------
    list
        One array for each name in `outputs`.

    Raises
    ------
    DeviceMemoryError
        Memory does not suffice for the batch.
    DeviceError
        ONNX Runtime failed otherwise. The message has the shapes of the inputs.
    """
    options = import_onnxruntime().RunOptions()
    options.log_severity_level = 4  # errors are in the exception already
    try:
        # A TensorRT session has the CUDA provider too.
        if _CUDA in session.get_providers():
            index = int(session.get_provider_options()[_CUDA]["device_id"])
            if shrink:
                options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{index}")
            return run_bound(session, outputs, inputs, options, "cuda", index)
        return list(session.run(list(outputs), inputs, options))
    except Exception as error:  # see open_session
        shapes = ", ".join(f"{name} {array.shape}" for name, array in inputs.items())
        kind = DeviceMemoryError if _NO_MEMORY.search(str(error)) else DeviceError
        hint = _NEEDS_CUDNN if "cuDNN is unavailable" in str(error) else ""
        raise kind(f"ONNX Runtime failed on {shapes}: {error}{hint}") from None


def run_bound(
    session: ort.InferenceSession,
    outputs: Sequence[str],
    inputs: dict[str, Any],
    options: Any,
    kind: str,
    index: int,
) -> list[Any]:
    """Run with inputs and outputs in the memory of a device: number `index` of the kind "cuda" or "cpu"."""
    ort = import_onnxruntime()
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, kind, index))
    for name in outputs:
        binding.bind_output(name, kind, index)
    session.run_with_iobinding(binding, options)
    return list(binding.copy_outputs_to_cpu())
