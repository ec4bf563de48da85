"""Devices and ONNX Runtime sessions: which execution provider runs a model, and never silently another.

`device` is "auto", "cpu", "cuda" or "cuda:N". A device asked for by name is used or refused (DeviceError);
only "auto" chooses, and `Device.reason` says what it chose and why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcs_runtime.errors import BundleError, DeviceError

if TYPE_CHECKING:
    import onnxruntime as ort

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class Device:
    """An execution provider that was chosen. `engine` is its name in the signature: "ort-cpu", "ort-cuda"."""

    engine: str
    provider: str
    options: dict[str, Any]
    reason: str


def import_onnxruntime() -> Any:
    """Import ONNX Runtime, or raise DeviceError that says which extra brings it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise DeviceError(
            f"ONNX Runtime cannot be imported ({error}): install `vcs-runtime[cpu]` or `vcs-runtime[gpu]`"
        ) from None
    return onnxruntime


def available_providers() -> list[str]:
    """The execution providers of the installed ONNX Runtime, in its order of preference."""
    return list(import_onnxruntime().get_available_providers())


def available_cores() -> int:
    """The cores that this process may use: what a container or taskset leaves, not what the host has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_device(device: str) -> Device:
    """Turn a device name into an execution provider.

    Raises ValueError for a name that is none, DeviceError where ONNX Runtime lacks the provider.
    """
    match = re.fullmatch(r"(auto|cpu|cuda|tensorrt)(?::(\d+))?", device) if isinstance(device, str) else None
    if not match or (match[2] is not None and match[1] in ("auto", "cpu")):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda:N' or 'tensorrt:N', not {device!r}")
    kind, index = match[1], int(match[2] or 0)
    available = available_providers()
    if kind == "tensorrt":
        raise DeviceError("tensorrt: this version has no TensorRT engines yet; use 'cuda:N' or 'cpu'")
    if kind == "cuda" and _CUDA not in available:
        raise DeviceError(
            f"{device}: the installed ONNX Runtime has no {_CUDA} (it has {', '.join(available)}): "
            "install `vcs-runtime[gpu]` in place of `vcs-runtime[cpu]`"
        )
    if kind == "cuda" or (kind == "auto" and _CUDA in available):
        reason = f"{_CUDA} of ONNX Runtime" if kind == "cuda" else f"auto: {_CUDA} is available"
        return Device("ort-cuda", _CUDA, {"device_id": index}, reason)
    reason = "named" if kind == "cpu" else f"auto: the installed ONNX Runtime has no {_CUDA}"
    return Device("ort-cpu", _CPU, {}, reason)


def open_session(
    model: Path, device: Device, threads: int | None = None, *, half: bool = False
) -> ort.InferenceSession:
    """Load an ONNX model on `device`; `threads` bounds the CPU threads of one run (default: every core).

    half  the weights are in half precision and many: a CPU computes in single precision, and must not keep
          them in both

    Raises DeviceError when the provider does not start, or starts on another device: ONNX Runtime itself
    would go on with the CPU. Raises BundleError for a file that is no model.
    """
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 3  # errors only: its warnings are of no use to who scores
    options.intra_op_num_threads = threads or available_cores()
    # Batches change shape all the time: a plan of the memory per shape would never be used again.
    options.enable_mem_pattern = False
    if half and device.provider == _CPU:
        # Optimised, the graph would hold its weights in single precision, twice the checkpoint. As it is,
        # each is widened just before it is used, and that memory is given back after.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
    try:
        session = ort.InferenceSession(
            os.fspath(model), options, providers=[(device.provider, device.options)], enable_fallback=False
        )
    except Exception as error:  # ONNX Runtime's own exception types share no base class but Exception
        if device.provider != _CPU:
            raise DeviceError(
                f"{device.engine}: ONNX Runtime could not start {device.provider}: {error}"
            ) from None
        raise BundleError(f"{model}: ONNX Runtime cannot load it: {error}") from None
    if device.provider not in session.get_providers():
        raise DeviceError(
            f"{device.engine}: ONNX Runtime fell back to {', '.join(session.get_providers())}; "
            f"its {device.provider} is installed, but a library it needs is not"
        )
    return session


def run_session(session: ort.InferenceSession, outputs: Sequence[str], inputs: dict[str, Any]) -> list[Any]:
    """Run one batch; what ONNX Runtime raises becomes a DeviceError with the shapes that were given.

    On a GPU inputs and outputs are bound to its memory: each crosses the bus once, and nothing waits for it
    in between.
    """
    options = import_onnxruntime().RunOptions()
    options.log_severity_level = 4  # what goes wrong is in the exception, once
    try:
        if session.get_providers()[0] == _CUDA:
            index = int(session.get_provider_options()[_CUDA]["device_id"])
            return run_bound(session, outputs, inputs, options, "cuda", index)
        return list(session.run(list(outputs), inputs, options))
    except Exception as error:  # see open_session
        shapes = ", ".join(f"{name} {array.shape}" for name, array in inputs.items())
        raise DeviceError(f"ONNX Runtime failed on {shapes}: {error}") from None


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
