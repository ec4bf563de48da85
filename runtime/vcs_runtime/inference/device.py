"""Choosing the execution provider that runs a model.

`device` is "auto", "cpu", "openvino", "openvino:fp32", "cuda:N", "cuda:N:fp32" or "tensorrt:N", and
`each_device` returns the devices that "cuda:all" means. A named device is used or refused
(DeviceError), and never replaced silently. Only "auto" chooses, and `Device.reason` gives the
choice and its reason. Without a number, the GPU of the local rank is used. The module
`vcs_runtime.inference.tensorrt` finds the TensorRT engines of a bundle, and
`vcs_runtime.inference.onnx_session` opens models.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from msgspec.structs import replace as replace_fields

from vcs_runtime.bundle.manifest import CudaGraph, EmbedderSpec, LearnedSegmenterSpec
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference import nvidia, openvino
from vcs_runtime.inference.rtx_session import Engine, release, unfit
from vcs_runtime.util import process
from vcs_runtime.util.extras import require
from vcs_runtime.util.numbers import checked_number
from vcs_runtime.util.telemetry import refuse_telemetry

TENSORRT = "TensorRT"  # runs models without ONNX Runtime
CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
Spec = TypeVar("Spec", EmbedderSpec, LearnedSegmenterSpec)
_ALL = ("cuda:all", "cuda:all:fp32")
ERRORS = 3  # ONNX Runtime's severity of errors: its warnings do not help users


@dataclass(frozen=True)
class Device:
    """A chosen execution provider."""

    # In the signature: "ort-cpu", "ort-cuda", "openvino", "tensorrt-rtx", or "tensorrt".
    provider_name: str
    # Its name in ONNX Runtime, or "OpenVINO" or "TensorRT", which run models without it.
    provider: str
    reason: str  # why it was chosen, in words
    index: int = 0  # number of the GPU
    # Bytes that all sessions together may take on the GPU; None: no limit.
    memory: int | None = None
    engine: Engine | None = None  # the TensorRT engine that runs the model
    batch_invariant: bool = False  # batches have fixed shapes (`inference.batching`); only on a GPU
    # "bf16" or "fp32" for OpenVINO, "fp32" for CUDA; "": the precision of the model's graph.
    precision: str = ""
    # Instructions with which OpenVINO multiplies in bf16: "amx" or "avx512", which round
    # differently. "": unknown, or not bf16.
    instructions: str = ""

    @property
    def is_gpu(self) -> bool:
        """Whether models run on a GPU."""
        return self.provider in (CUDA, TENSORRT)

    def suited(self, spec: Spec) -> Spec:
        """Return a model's settings, without a graph that this device does not run.

        Raises DeviceError if the model does not have the precision that the device requires.
        """
        if self.provider == CUDA and self.precision and spec.precision != self.precision:
            raise DeviceError(
                f"cuda:{self.index}:fp32: {spec.name} is in {spec.precision}, but only models in"
                f" fp32 can run in fp32: use cuda:{self.index}"
            )
        if self.provider == CUDA and not self.precision:
            return spec
        return replace_fields(spec, cuda=None)

    def precision_of(self, weights: str, cuda: CudaGraph | None = None) -> str:
        """Return the precision of a model, as the signature names it.

        `weights` is the precision of the weights, and `cuda` is the graph for CUDA.

        If OpenVINO computes in another precision than the weights, both are named, as in
        "int8+bf16". For weights in fp32 only OpenVINO's precision is named.
        """
        if self.engine:
            return "fp16"
        if cuda and cuda.precision:
            return cuda.precision
        if not self.precision:
            return weights
        if weights in ("fp32", self.precision):
            return self.precision
        return f"{weights}+{self.precision}"


def import_onnxruntime() -> Any:
    """Import ONNX Runtime; raises MissingExtraError.

    In a process of the command line, ONNX Runtime's log is limited to errors. In other processes
    the caller decides about the log.
    """
    refuse_telemetry()
    ort = require("onnxruntime", ("cpu", "gpu"), "running models")
    if process.is_command:
        ort.set_default_logger_severity(ERRORS)
    return ort


def available_providers() -> list[str]:
    """Return the execution providers of the installed ONNX Runtime, in its order of preference."""
    return list(import_onnxruntime().get_available_providers())


def split_device(device: str) -> tuple[str, int]:
    """Split the name of a device into its kind and its number; raises ValueError for another name.

    "openvino:fp32" is a kind, but "cuda:0:fp32" has the kind "cuda".
    """
    if device in ("auto", "cpu", "openvino", "openvino:fp32"):
        return device, 0
    if isinstance(device, str):
        name = device.removesuffix(":fp32") if device.startswith("cuda") else device
        match = re.fullmatch(r"(cuda|tensorrt)(?::(\d+))?", name)
        if match:
            return match[1], int(match[2] or 0)
    raise ValueError(
        "device must be 'auto', 'cpu', 'openvino', 'openvino:fp32', 'cuda:N', 'cuda:N:fp32', "
        f"'cuda:all' or 'tensorrt:N', in lower case, not {device!r}: the first GPU is 'cuda:0'"
    )


def each_device(device: str) -> list[str]:
    """Return the names of the devices that "cuda:all" means, or the one name alone.

    Raises DeviceError, which names the missing part, if there is no GPU for "cuda:all".
    """
    if device not in _ALL:
        return [device]
    count = nvidia.gpu_count()
    if not count:
        # Both raise the DeviceError of the first GPU.
        choose_device("cuda:0")
        nvidia.gpu(0)
    return [device.replace("all", str(index)) for index in range(count)]


def check_device(device: str, gpu_memory_gb: float | None = None) -> None:
    """Raise the errors that a scorer on this device raises before it looks at a GPU.

    The errors are the same as in `choose_device`.
    """
    choose_device("cuda:0" if device in _ALL else device, gpu_memory_gb)


def choose_device(device: str, gpu_memory_gb: float | None = None) -> Device:
    """Choose the execution provider for a device name.

    The name "auto" selects CUDA if CUDA can start, and otherwise the CPU.

    `gpu_memory_gb` limits the GPU's memory, in GB of 10^9 bytes. Raises ValueError for another name
    or number, DeviceError if ONNX Runtime or the provider lacks something, and MissingExtraError.
    """
    kind, index = split_device(device)
    memory = _bytes(gpu_memory_gb)
    if kind.startswith("openvino"):
        return _openvino_device(kind)
    if kind == "cpu":
        import_onnxruntime()
        return Device("ort-cpu", CPU, "named")
    if kind == "auto" and CUDA not in available_providers():
        return Device("ort-cpu", CPU, f"auto: the installed ONNX Runtime has no {CUDA}")
    rank = _gpu_of_rank()
    if not re.search(r":\d", device):
        index = rank
    elif rank and not index:
        warnings.warn(
            f"{device} is used on local rank {rank}; ranks that use the same GPU share its memory."
            f" For the GPU of the rank, give '{kind}'",
            stacklevel=2,
        )
    if kind == "auto":
        hindrance = _cuda_hindrance(index)
        if hindrance:
            return Device("ort-cpu", CPU, f"auto: CUDA cannot start: {hindrance}")
    if kind == "tensorrt":
        return _tensorrt_device(index, memory)
    available = available_providers()
    if CUDA not in available:
        raise DeviceError(
            f"{device}: the installed ONNX Runtime has no {CUDA} (it has"
            f" {', '.join(available)}): install `vcs-runtime[gpu]` in place of `vcs-runtime[cpu]`"
        )
    _preload()
    if lacking := nvidia.missing(import_onnxruntime()):
        raise DeviceError(f"{device}: the {CUDA} of ONNX Runtime lacks {lacking}")
    if problem := nvidia.unfit(import_onnxruntime(), index):
        raise DeviceError(f"{device}: {problem}")
    reason = "named" if kind != "auto" else f"auto: {CUDA} is available"
    precision = "fp32" if device.endswith(":fp32") else ""
    return Device("ort-cuda", CUDA, reason, index, memory, precision=precision)


def _tensorrt_device(index: int, memory: int | None) -> Device:
    if problem := unfit(index):
        raise DeviceError(f"tensorrt:{index}: {problem}")
    return Device(release().split()[0], TENSORRT, "named", index, memory)


def _openvino_device(kind: str) -> Device:
    if kind == "openvino:fp32":
        openvino.import_openvino()
        return Device("openvino", "OpenVINO", "named", precision="fp32")
    precision, reason = openvino.best_precision()
    instructions = openvino.bf16_instructions() if precision == "bf16" else ""
    return Device(
        "openvino",
        "OpenVINO",
        f"named: {reason}",
        precision=precision,
        instructions=instructions,
    )


#: Beginning of the description of a CPU that "auto" has chosen although there is a GPU.
UNUSED_GPU: Final = "the GPU is not used: "


def describe(device: Device) -> str:
    """Describe a device, and why it was chosen.

    The description also shows whether "auto" leaves a GPU of this machine unused.
    """
    description = f"{device.provider_name} ({device.reason})"
    if device.reason.startswith("auto") and not device.is_gpu and nvidia.gpu_is_there():
        return UNUSED_GPU + description
    return description


def _gpu_of_rank() -> int:
    """Return the GPU for this process's local rank in distributed training, or 0.

    The rank is `LOCAL_RANK`, as torchrun sets it.
    """
    rank = os.environ.get("LOCAL_RANK", "")
    if re.fullmatch("[1-9][0-9]?", rank) and int(rank) < nvidia.gpu_count():
        return int(rank)
    return 0


def _cuda_hindrance(index: int) -> str:
    """Return why the CUDA provider cannot start on a GPU, or ""."""
    _preload()
    if lacking := nvidia.missing(import_onnxruntime()):
        return f"missing: {lacking}"
    try:
        nvidia.gpu(index)
    except DeviceError as error:
        return str(error)
    return nvidia.unfit(import_onnxruntime(), index)


def _bytes(gpu_memory_gb: float | None) -> int | None:
    if gpu_memory_gb is None:
        return None
    allowed = "a number of GB above 0 and below 10^6"  # its bytes fit into 64 bits
    size = checked_number("gpu_memory_gb", gpu_memory_gb, allowed, lambda size: 0 < size < 1e6)
    return int(size * 1e9)


def cuda_of(device: Device) -> Device:
    """Return the CUDA provider of the same GPU."""
    return replace(device, provider_name="ort-cuda", provider=CUDA, engine=None)


def _preload() -> None:
    """Load CUDA from NVIDIA's packages.

    ONNX Runtime's loader does not look for them there.
    """
    # `preload_dlls` prints its failures; `nvidia.missing` has a better message.
    with contextlib.redirect_stdout(io.StringIO()):
        import_onnxruntime().preload_dlls()
