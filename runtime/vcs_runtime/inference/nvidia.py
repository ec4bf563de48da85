"""NVIDIA's libraries: their installed versions, and the packages that contain missing ones.

When a GPU does not start, ONNX Runtime does not name the missing library. This module tries the
libraries to which the providers of its wheels link. It loads nothing unless a GPU is requested.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vcs_runtime.errors import DeviceError

_COMPUTE_CAPABILITY = (75, 76)  # cuDeviceGetAttribute: major, minor
# CUDA_ERROR_NOT_INITIALIZED, with which cuInit fails in a child of a process that called it.
_FORKED = 3
_FORK = "this process was forked after CUDA was used: start processes with the method spawn"
_FIRST_DRIVER = {12: 525, 13: 580}  # NVIDIA's driver with which each major version of CUDA begins
# First bytes of a block of GPU code in a library.
_MACHINE_CODE = b"\x50\xed\x55\xba\x01\x00\x10\x00"
_PTX, _ONE_ARCHITECTURE = 1, 1 << 20  # kind and flag of an entry of this block


@dataclass(frozen=True)
class Library:
    """A shared library that a provider needs."""

    name: str  # of its file
    package: str  # the PyPI package that contains it, or a description in words
    version: str | None  # "": it is installed, but has no version; None: it cannot be loaded


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, architecture ("sm90": compute capability 9.0), and memory in bytes."""

    name: str
    architecture: str
    memory: int


def cuda_major(ort: Any) -> int:
    """Return the CUDA major version of an ONNX Runtime build; 13 if the build reports none."""
    major = str(getattr(ort, "cuda_version", "") or "").partition(".")[0]
    return int(major) if major.isdigit() else 13


def libraries(ort: Any) -> list[Library]:
    """Return the libraries that the CUDA provider of an ONNX Runtime needs; cuDNN is not needed."""
    major = cuda_major(ort)
    suffix = f"-cu{major}" if major < 13 else ""  # NVIDIA's packages bear no number since CUDA 13
    needed = [
        ("libcuda.so.1", "NVIDIA's driver"),
        (f"libcudart.so.{major}", f"nvidia-cuda-runtime{suffix}"),
        (f"libcublas.so.{major}", f"nvidia-cublas{suffix}"),
        (f"libcublasLt.so.{major}", f"nvidia-cublas{suffix}"),
        ("libcurand.so.10", f"nvidia-curand{suffix}"),
    ]
    return [Library(name, package, _version(name)) for name, package in needed]


def missing(ort: Any) -> str:
    """Return the missing libraries and their packages in one line, or ""."""
    absent = [item for item in libraries(ort) if item.version is None]
    return ", ".join(f"{item.name} ({item.package})" for item in absent)


def hindrance() -> str:
    """Return why NVIDIA's driver does not start in this process, or ""."""
    cuda = _load("libcuda.so.1")
    if cuda is not None:
        code = cuda.cuInit(0)
        if code == 0:
            return ""
        if code == _FORKED:
            return _FORK
    return "NVIDIA's driver is not installed or does not start (libcuda.so.1)"


def gpu(index: int) -> Gpu:
    """Return the GPU with number `index` in CUDA's order.

    Raises DeviceError if the driver does not show the GPU.
    """
    if obstacle := hindrance():
        raise DeviceError(f"cuda:{index}: {obstacle}")
    cuda = _load("libcuda.so.1")
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), index):
        count = ctypes.c_int()
        cuda.cuDeviceGetCount(ctypes.byref(count))
        raise DeviceError(f"cuda:{index}: there is no such GPU; the driver shows {count.value}")
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


def gpu_count() -> int:
    """Return how many GPUs the driver shows; 0 without a driver."""
    count = ctypes.c_int()
    if hindrance() or _load("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def gpu_is_there() -> bool:
    """Whether NVIDIA's driver shows a GPU, whatever the installed packages can do with it."""
    try:
        gpu(0)
    except DeviceError:
        return hindrance() == _FORK
    return True


def old_driver(major: int, name: str) -> str:
    """Return why a driver is too old for a library built for a major version of CUDA, or ""."""
    newest = str(_version("libcuda.so.1"))  # "CUDA 12.4"
    if int(newest.split()[1].partition(".")[0]) >= major:
        return ""
    driver = "a newer driver"
    if major in _FIRST_DRIVER:
        driver = f"driver {_FIRST_DRIVER[major]} or later"
    return (
        f"NVIDIA's driver supports {newest}, but {name} needs CUDA {major}: install {driver}, or"
        " NVIDIA's package cuda-compat on data centre GPUs"
    )


def unfit(ort: Any, index: int) -> str:
    """Return why an ONNX Runtime cannot run on a GPU, and advice.

    The result is "" if there is no obstacle, or if the driver does not show the GPU.
    """
    try:
        shown = gpu(index)
    except DeviceError:
        return ""  # opening a model on this GPU raises the error
    name = f"ONNX Runtime {ort.__version__}"
    if old := old_driver(cuda_major(ort), name):
        return old
    codes = machine_code(Path(str(getattr(ort, "__file__", ""))).parent)
    architecture = int(shown.architecture.removeprefix("sm"))
    if codes and not any(code.runs_on(architecture) for code in codes):
        return (
            f"{shown.name} is {shown.architecture}, but {name} has code only for"
            f" {', '.join(map(str, codes))}: use `--device cpu`, or another build of ONNX Runtime"
        )
    return ""


@dataclass(frozen=True, order=True)
class Code:
    """GPU code in a library: machine code or PTX.

    A driver compiles PTX for later architectures.
    """

    architecture: int  # 90: compute capability 9.0
    only: bool  # for this architecture and no later one ("sm90a")
    ptx: bool

    def __str__(self) -> str:
        kind = "compute" if self.ptx else "sm"
        suffix = "a" if self.only else ""
        return f"{kind}{self.architecture}{suffix}"

    def runs_on(self, architecture: int) -> bool:
        """Whether a GPU of an architecture runs the code."""
        if self.only or architecture < self.architecture:
            return architecture == self.architecture
        # Machine code runs only on architectures of its major version.
        return self.ptx or architecture // 10 == self.architecture // 10


@cache
def machine_code(package: Path) -> tuple[Code, ...]:
    """Return the GPU code in the CUDA provider of an ONNX Runtime; () if the file is missing.

    NVIDIA's compiler embeds the code as blocks ("fat binaries"). Only the headers of blocks and
    entries are read.
    """
    codes = set()
    with (
        suppress(OSError),
        open(package / "capi/libonnxruntime_providers_cuda.so", "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library,
    ):

        def number(place: int, size: int) -> int:
            return int.from_bytes(library[place : place + size], "little")

        place = library.find(_MACHINE_CODE)
        while place >= 0:
            end = place + 16 + number(place + 8, 8)
            place += 16
            while place < end:
                header = number(place + 4, 4)
                if not header:
                    break
                only = bool(number(place + 40, 8) & _ONE_ARCHITECTURE)
                codes.add(Code(number(place + 28, 4), only, number(place, 2) == _PTX))
                place += header + number(place + 8, 8)
            place = library.find(_MACHINE_CODE, end)
    return tuple(sorted(codes))


def free_memory(index: int, major: int) -> int | None:
    """Return the free memory of a GPU in bytes; None if the CUDA runtime does not report it.

    This makes a CUDA context on the GPU, so call it only when there is a session on the GPU.
    """
    # In another thread, because CUDA's current GPU belongs to a thread, and the caller's must stay.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_free_memory, index, major).result()


def _free_memory(index: int, major: int) -> int | None:
    runtime = _load(f"libcudart.so.{major}")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if (
        runtime is None
        or runtime.cudaSetDevice(index)
        or runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    ):
        return None
    return free.value


def _load(name: str) -> Any:
    """Load a shared library, or return None.

    NVIDIA's packages put their libraries where the loader does not look. A library that was loaded
    by its path is found by its name from then on, so that ONNX Runtime's provider finds it too.
    """
    places = [name]  # where the loader looks
    packages = find_spec("nvidia")
    for folder in (packages and packages.submodule_search_locations) or ():
        places.extend(map(os.fspath, Path(folder).glob(f"*/lib/{name}")))
    for place in places:
        with suppress(OSError):
            return ctypes.CDLL(place)
    return None


def _version(name: str) -> str | None:
    """Return the version of a library, as `Library.version`."""
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
    return ""
