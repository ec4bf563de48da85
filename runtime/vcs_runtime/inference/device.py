"""Devices: which execution provider runs a model, and never silently another.

`device` is "auto", "cpu", "openvino", "openvino:fp32", "cuda:N", "cuda:N:fp32" or "tensorrt:N", and
`each_device` says which of them "cuda:all" means. A device asked for by name is used or refused
(DeviceError). Only "auto" chooses, and `Device.reason` says what it chose and why. Without a
number, the GPU is that of the local rank. The module `vcs_runtime.inference.tensorrt` chooses among
the TensorRT engines of a bundle, and `vcs_runtime.inference.onnx_session` opens models.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace as replace_fields

from vcs_runtime.bundle.manifest import CudaGraph, EmbedderSpec, LearnedSegmenterSpec
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference import nvidia, openvino
from vcs_runtime.util import process
from vcs_runtime.util.extras import require
from vcs_runtime.util.numbers import checked_number
from vcs_runtime.util.telemetry import refuse_telemetry

TENSORRT = "TensorrtExecutionProvider"
CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
Spec = TypeVar("Spec", EmbedderSpec, LearnedSegmenterSpec)
_ALL = ("cuda:all", "cuda:all:fp32")
ERRORS = 3  # ONNX Runtime's severity of errors: its warnings are of no use to users


class Engine(NamedTuple):
    """A TensorRT engine."""

    model: Path  # the graph that ONNX Runtime opens
    rows: int  # of the largest batch that it takes
    tokens: int
    sha256: str


@dataclass(frozen=True)
class Device:
    """An execution provider that was chosen."""

    provider_name: str  # in the signature: "ort-cpu", "ort-cuda", "ort-tensorrt" or "openvino"
    provider: str  # in ONNX Runtime; or "OpenVINO", which runs models without it
    reason: str  # why it was chosen, in words
    index: int = 0  # number of the GPU
    # Bytes that all sessions together may take on the GPU; None: no limit.
    memory: int | None = None
    engines: tuple[Engine, ...] = ()  # TensorRT engines that run the model
    batch_invariant: bool = False  # batches have fixed shapes (`inference.batching`); only on a GPU
    # "bf16" or "fp32" of OpenVINO, "fp32" of CUDA; "": that of the model's graph.
    precision: str = ""
    # "amx" or "avx512", which round differently: what OpenVINO takes for bf16. "": unknown, or not
    # bf16
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
                f"cuda:{self.index}:fp32: {spec.name} is in {spec.precision}, and only models in"
                f" fp32 can be run in fp32: use cuda:{self.index}"
            )
        return (
            spec
            if self.provider == CUDA and not self.precision
            else replace_fields(spec, cuda=None)
        )

    def precision_of(self, weights: str, cuda: CudaGraph | None = None) -> str:
        """Return the precision of a model, as the signature names it.

        `weights` is the precision of the weights, and `cuda` is the graph for CUDA.

        OpenVINO's own is added to that of weights which are not in fp32, as in "int8+bf16".
        """
        if self.engines:
            return "fp16"
        if cuda and cuda.precision:
            return cuda.precision
        if not self.precision or weights == self.precision == "fp32":
            return weights
        return (
            self.precision if weights in ("fp32", self.precision) else f"{weights}+{self.precision}"
        )


def import_onnxruntime() -> Any:
    """Import ONNX Runtime; raises MissingExtraError.

    In a process of the command line, ONNX Runtime's log is limited to errors. Elsewhere it is the
    caller's.
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

    "openvino:fp32" is a kind of its own; "cuda:0:fp32" is not.
    """
    if device in ("auto", "cpu", "openvino", "openvino:fp32"):
        return device, 0
    plain = (
        device.removesuffix(":fp32") if isinstance(device, str) and device[:4] == "cuda" else device
    )
    match = re.fullmatch(r"(cuda|tensorrt)(?::(\d+))?", plain) if isinstance(plain, str) else None
    if not match:
        raise ValueError(
            "device must be 'auto', 'cpu', 'openvino', 'openvino:fp32', 'cuda:N', 'cuda:N:fp32' or "
            f"'tensorrt:N', not {device!r}" + ": the first GPU is 'cuda:0'" * (device == "gpu")
        )
    return match[1], int(match[2] or 0)


def each_device(device: str) -> list[str]:
    """Return the names of the devices that "cuda:all" means, or the one name alone.

    Raises DeviceError, which says what is missing, if "cuda:all" means none.
    """
    if device not in _ALL:
        return [device]
    if not (count := nvidia.gpu_count()):
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
    or number, DeviceError for what ONNX Runtime or the provider lacks, and MissingExtraError.
    """
    kind, index = split_device(device)
    memory = _bytes(gpu_memory_gb)
    if kind == "openvino":
        precision, reason = openvino.best_precision()
        instructions = openvino.bf16_instructions() if precision == "bf16" else ""
        return Device(
            "openvino",
            "OpenVINO",
            f"named: {reason}",
            precision=precision,
            instructions=instructions,
        )
    if kind == "openvino:fp32":
        openvino.import_openvino()
        return Device("openvino", "OpenVINO", "named", precision="fp32")
    available = available_providers()
    if kind == "cpu":
        return Device("ort-cpu", CPU, "named")
    if kind == "auto" and CUDA not in available:
        return Device("ort-cpu", CPU, f"auto: the installed ONNX Runtime has no {CUDA}")
    own = _gpu_of_rank()
    if not re.search(r":\d", device):
        index = own
    elif own and not index:
        warnings.warn(
            f"{device} is named on local rank {own}: ranks that name the same GPU share its memory;"
            f" '{kind}' alone means the GPU of the rank",
            stacklevel=2,
        )
    if kind == "auto" and (hindrance := _cuda_hindrance(index)):
        return Device("ort-cpu", CPU, f"auto: CUDA cannot start: {hindrance}")
    provider = TENSORRT if kind == "tensorrt" else CUDA
    if provider not in available:
        raise DeviceError(
            f"{device}: the installed ONNX Runtime has no {provider} (it has"
            f" {', '.join(available)}): install `vcs-runtime[gpu]` in place of `vcs-runtime[cpu]`"
        )
    _preload()
    if lacking := missing_libraries(tensorrt=kind == "tensorrt"):
        raise DeviceError(f"{device}: the {provider} of ONNX Runtime lacks {lacking}")
    if unfit := nvidia.unfit(import_onnxruntime(), index):
        raise DeviceError(f"{device}: {unfit}")
    name = "ort-tensorrt" if kind == "tensorrt" else "ort-cuda"
    reason = "named" if kind != "auto" else f"auto: {CUDA} is there"
    precision = "fp32" if device.endswith(":fp32") else ""
    return Device(name, provider, reason, index, memory, precision=precision)


#: How the description begins of a device that "auto" has chosen although there is a GPU.
UNUSED_GPU: Final = "the GPU is not used: "


def describe(device: Device) -> str:
    """Describe a device, and why it was chosen.

    The description also shows whether "auto" leaves a GPU of this machine unused.
    """
    unused = device.reason.startswith("auto") and not device.is_gpu and nvidia.gpu_is_there()
    return f"{UNUSED_GPU if unused else ''}{device.provider_name} ({device.reason})"


def _gpu_of_rank() -> int:
    """Return the GPU for this process's local rank in distributed training, or 0.

    The rank is `LOCAL_RANK`, as torchrun sets it.
    """
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if re.fullmatch("[1-9][0-9]?", rank) and int(rank) < nvidia.gpu_count() else 0


def _cuda_hindrance(index: int) -> str:
    """Return why the CUDA provider cannot start on a GPU, or ""."""
    _preload()
    if lacking := missing_libraries():
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
    return int(
        checked_number("gpu_memory_gb", gpu_memory_gb, allowed, lambda size: 0 < size < 1e6) * 1e9
    )


def cuda_of(device: Device) -> Device:
    """Return the CUDA provider of the same GPU."""
    return replace(device, provider_name="ort-cuda", provider=CUDA, engines=())


def missing_libraries(*, tensorrt: bool = False) -> str:
    """Return the libraries that ONNX Runtime needs for a GPU but cannot find, or "".

    The text also names the packages of these libraries.
    """
    return nvidia.missing(import_onnxruntime(), tensorrt=tensorrt)


def _preload() -> None:
    """Load CUDA and cuDNN from NVIDIA's packages.

    ONNX Runtime's loader does not look for them there.
    """
    # It prints; `missing_libraries` has a better message.
    with contextlib.redirect_stdout(io.StringIO()):
        import_onnxruntime().preload_dlls()
