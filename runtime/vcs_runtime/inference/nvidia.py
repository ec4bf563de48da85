"""NVIDIA's libraries, asked directly: which are there, in which version, and what brings those that are not.

ONNX Runtime says of a GPU that does not start no more than that; here is asked what it needs, by the names
that the providers of its wheels link to. Nothing here is imported or loaded unless a GPU is asked for.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from vcs_runtime.errors import DeviceError

_COMPUTE_CAPABILITY = (75, 76)  # cuDeviceGetAttribute: major, minor
_FIRST_WITH_FP8 = 89
TENSORRT_MAJOR = 10
"""What ONNX Runtime's TensorRT provider links to, up to 1.31 at least: TensorRT 11 does not replace it."""


@dataclass(frozen=True)
class Library:
    """A shared library that a provider needs.

    package  what brings it: a package of PyPI, or words
    version  as it says itself; "" where it is there and cannot be asked; None where it cannot be loaded
    """

    name: str
    package: str
    version: str | None


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, architecture ("sm90": compute capability 9.0), and memory in bytes."""

    name: str
    architecture: str
    memory: int

    @property
    def has_fp8(self) -> bool:
        """Whether it multiplies in FP8: from compute capability 8.9 on."""
        return int(self.architecture.removeprefix("sm")) >= _FIRST_WITH_FP8


def cuda_major(ort: Any) -> int:
    """The CUDA that an ONNX Runtime was built for: 12, 13, ...; 13 where it does not say."""
    told = str(getattr(ort, "cuda_version", "") or "").partition(".")[0]
    return int(told) if told.isdigit() else 13


def libraries(major: int, *, tensorrt: bool = False) -> list[Library]:
    """What the CUDA provider for CUDA `major` needs, or the TensorRT provider."""
    suffix = f"-cu{major}" if major < 13 else ""  # NVIDIA's packages bear no number since CUDA 13
    needed = [
        ("libcuda.so.1", "NVIDIA's driver"),
        (f"libcudart.so.{major}", f"nvidia-cuda-runtime{suffix}"),
        (f"libcublas.so.{major}", f"nvidia-cublas{suffix}"),
        (f"libcublasLt.so.{major}", f"nvidia-cublas{suffix}"),
        ("libcurand.so.10", f"nvidia-curand{suffix}"),
        # The CUDA provider loads it when an operator first needs it; ReduceL2, in every embedder here, does.
        ("libcudnn.so.9", f"nvidia-cudnn-cu{major}"),
    ]
    if tensorrt:
        package = f"tensorrt-cu{major}>={TENSORRT_MAJOR},<{TENSORRT_MAJOR + 1} (of NVIDIA's own index)"
        needed += [
            (f"{name}.so.{TENSORRT_MAJOR}", package)
            for name in ("libnvinfer", "libnvonnxparser", "libnvinfer_plugin")
        ]
    return [Library(name, package, _version(name)) for name, package in needed]


def missing(major: int, *, tensorrt: bool = False) -> str:
    """What is needed and cannot be loaded, and what brings it, in one line; else ""."""
    absent = [item for item in libraries(major, tensorrt=tensorrt) if item.version is None]
    return ", ".join(f"{item.name} ({item.package})" for item in absent)


def gpu(index: int) -> Gpu:
    """The GPU number `index`, as CUDA counts them. Raises DeviceError where the driver does not show it."""
    cuda = _load("libcuda.so.1")
    if cuda is None or cuda.cuInit(0):
        raise DeviceError(f"cuda:{index}: NVIDIA's driver is not there or does not start (libcuda.so.1)")
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), index):
        count = ctypes.c_int()
        cuda.cuDeviceGetCount(ctypes.byref(count))
        raise DeviceError(f"cuda:{index}: there is no such GPU, the driver shows {count.value}")
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), device)
    numbers = []
    for attribute in _COMPUTE_CAPABILITY:
        number = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        numbers.append(str(number.value))
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return Gpu(name.value.decode(errors="replace"), f"sm{''.join(numbers)}", memory.value)


def free_memory(index: int, major: int) -> int | None:
    """Bytes that are free on a GPU, by whomever the rest is taken; None if the CUDA runtime cannot say.

    Makes a CUDA context on it: to be asked when there is a session there.
    """
    runtime = _load(f"libcudart.so.{major}")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if (
        runtime is None
        or runtime.cudaSetDevice(index)
        or runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    ):
        return None
    return free.value


def tensorrt_version() -> str | None:
    """The version of libnvinfer, "10.16.1"; None where there is none of the major version needed."""
    return _version(f"libnvinfer.so.{TENSORRT_MAJOR}") or None


def _load(name: str) -> Any:
    """A shared library, or None. It is the seam at which tests put libraries of their own."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _version(name: str) -> str | None:
    library = _load(name)
    if library is None:
        return None
    stem = name.partition(".")[0]
    number = ctypes.c_int()
    if stem == "libcuda":
        library.cuDriverGetVersion(ctypes.byref(number))
        return f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
    if stem == "libcudart":
        library.cudaRuntimeGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"
    if stem == "libcudnn":
        library.cudnnGetVersion.restype = ctypes.c_size_t
        value = library.cudnnGetVersion()
    elif stem == "libnvinfer":
        value = library.getInferLibVersion()
    else:
        return ""
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"
