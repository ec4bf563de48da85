"""TensorRT engines on a GPU, through NVIDIA's Python bindings, with memory by NVIDIA's cuda-core.

**No engine has run on a GPU yet**: no card that TensorRT for RTX supports was at hand. Tests run
this module over a fake of both packages (`tests/lib/support/fake_tensorrt.py`).

Where TensorRT for RTX is not installed, NVIDIA's own package `tensorrt` takes its place. It has the
same calls, and data centre GPUs such as H100 and B200, and builds engines on the GPU itself.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import DeviceError, MissingExtraError
from vcs_runtime.inference import nvidia
from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.extras import require

#: What an engine of TensorRT for RTX is built for: every compute capability that it offers but 7.5,
#: for which it compiles no product in float32.
CAPABILITIES: Final = ("sm80", "sm86", "sm89", "sm120", "sm121")
_PURPOSE = "TensorRT"
_CUDA = 13  # major version of CUDA that the extra's packages are built for
_REPEATED = 3  # messages of TensorRT that an error repeats: the last ones name the cause
_ALIGNED = 256  # TensorRT wants its memory at multiples of it
_TYPES = {"FLOAT": "float", "HALF": "float16", "INT64": "int64", "INT32": "int32"}


class Engine(NamedTuple):
    """A TensorRT engine of a model."""

    path: Path
    sha256: str
    profiles: tuple[tuple[int, int], ...]
    """Rows and tokens of each profile's largest batch; shortest texts come first."""


def import_tensorrt() -> Any:
    """Import TensorRT for RTX, or else NVIDIA's own TensorRT; raises MissingExtraError."""
    try:
        return require("tensorrt_rtx_bindings", "tensorrt", _PURPOSE)
    except MissingExtraError:
        if find_spec("tensorrt") is None:
            raise
        return require("tensorrt", "tensorrt", _PURPOSE)


def is_rtx(trt: Any) -> bool:
    """Whether the imported package is TensorRT for RTX."""
    return hasattr(trt, "ComputeCapability")


def provider_name(trt: Any) -> str:
    """Return the name of the imported package in signatures."""
    return "tensorrt-rtx" if is_rtx(trt) else "tensorrt"


def targets(trt: Any, index: int = 0) -> list[str]:
    """Return what an engine is built for: capabilities, or for NVIDIA's own TensorRT this GPU."""
    if is_rtx(trt):
        return list(CAPABILITIES)
    gpu = nvidia.gpu(index)
    return [f"{gpu.name} ({gpu.architecture})"]


def unfit(index: int) -> str:
    """Return why a GPU can run no engine, and advice; "" if nothing hinders.

    Raises MissingExtraError without the packages, and DeviceError if the driver shows no such GPU.
    """
    trt = import_tensorrt()
    require("cuda.core", "tensorrt", _PURPOSE)
    gpu = nvidia.gpu(index)
    if not is_rtx(trt):
        return ""
    if old := nvidia.old_driver(_CUDA, f"TensorRT for RTX {trt.__version__}"):
        return old
    if gpu.architecture in CAPABILITIES:
        return ""
    return (
        f"{gpu.name} is {gpu.architecture}, and engines of TensorRT for RTX are for"
        f" {', '.join(CAPABILITIES)}: use cuda:{index}, or NVIDIA's package tensorrt in place of"
        " tensorrt-rtx-cu13-bindings"
    )


def logger(trt: Any, keep: Callable[[str], object] = lambda line: None) -> Any:
    """Return a logger for TensorRT, which passes each line to `keep`, and prints nothing."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            keep(f"{severity.name} {message}\n")
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(message)

        def words(self) -> str:
            return "; ".join(self.errors[-_REPEATED:]) or "TensorRT gives no reason"

    return Log()


class Tensor(NamedTuple):
    """An input or output of an engine, described as ONNX Runtime does."""

    name: str
    type: str  # "tensor(int64)"
    shape: list[int]  # -1: it depends on the batch


class TensorRTSession:
    """An engine on a GPU, used like a session of ONNX Runtime, by one thread at a time.

    This thread's current GPU becomes the engine's.
    """

    def __init__(self, engine: Engine, index: int, memory: int | None, fixed_shapes: bool) -> None:
        """Load an engine; `memory` limits it in bytes. Raises DeviceError.

        `fixed_shapes` says that batches have few shapes. Then kernels are compiled for each shape.
        Otherwise one kernel runs all shapes: those that TensorRT compiles in the background take
        its place at any time, and round differently.
        """
        self._trt = trt = import_tensorrt()
        self._core = core = require("cuda.core", "tensorrt", _PURPOSE)
        self._process = os.getpid()
        self._built = engine
        self._fixed_shapes = fixed_shapes
        self._gpu = nvidia.gpu(index)
        device = core.Device(index)
        device.set_current()
        self._stream = device.create_stream()
        self._plan = _verified(engine)
        room = 0  # no limit
        if memory is not None:
            room = memory - len(self._plan)
            if room <= 0:
                raise DeviceError(
                    f"its weights take {len(self._plan) / 1e9:.2f} GB of GPU memory, and"
                    f" {memory / 1e9:.2f} GB are allowed"
                )
        # A pool of our own keeps to a limit, and gives freed memory back.
        options = core.DeviceMemoryResourceOptions(max_size=room)
        self._pool = core.DeviceMemoryResource(device, options=options)
        self._arena: Any = None
        self._log = logger(trt)
        runtime = trt.Runtime(self._log)
        if hasattr(runtime, "defer_weights_loading"):
            runtime.defer_weights_loading = True  # so that weights can be unloaded
        self._engine = runtime.deserialize_cuda_engine(self._plan)
        if self._engine is None:
            raise DeviceError(f"TensorRT does not load {engine.path}: {self._log.words()}")
        self._contexts: dict[int, Any] = {}
        self._config, self._cache = self._runtime_config()
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        is_input = trt.TensorIOMode.INPUT
        self._inputs = [name for name in names if self._engine.get_tensor_mode(name) == is_input]
        self._outputs = [name for name in names if name not in self._inputs]

    def get_inputs(self) -> list[Tensor]:
        """Return the inputs of the model."""
        return list(map(self._tensor, self._inputs))

    def get_outputs(self) -> list[Tensor]:
        """Return the outputs of the model."""
        return list(map(self._tensor, self._outputs))

    def _tensor(self, name: str) -> Tensor:
        kind = self._engine.get_tensor_dtype(name).name
        return Tensor(name, f"tensor({_TYPES[kind]})", list(self._engine.get_tensor_shape(name)))

    def run(
        self, outputs: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]]
    ) -> list[npt.NDArray[Any]]:
        """Run one batch and return one array for each name in `outputs`.

        Raises DeviceError, or the error of cuda-core if memory does not suffice.
        """
        if os.getpid() != self._process:
            raise DeviceError(nvidia.FORK)
        self._load_weights()
        context = self._context(inputs["input_ids"].shape)
        given = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        for name, array in given.items():
            self._check(context.set_input_shape(name, array.shape))
        results = {}
        for name in self._outputs:
            kind = self._trt.nptype(self._engine.get_tensor_dtype(name))
            results[name] = np.empty(tuple(context.get_tensor_shape(name)), kind)
        workspace = context.update_device_memory_size_for_shapes()
        places, size = _places({**given, **results})
        start = self._room(size + workspace)
        context.set_device_memory(start + size, workspace)
        for name, place in places.items():
            self._check(context.set_tensor_address(name, start + place))
        for name, array in given.items():
            self._on_gpu(array, start + places[name]).copy_from(
                _on_host(self._core, array), stream=self._stream
            )
        self._check(context.execute_async_v3(int(self._stream.handle)))
        for name, array in results.items():
            self._on_gpu(array, start + places[name]).copy_to(
                _on_host(self._core, array), stream=self._stream
            )
        self._stream.sync()
        return [results[name] for name in outputs]

    def release(self) -> bool:
        """Free the memory of weights and batches, and keep compiled kernels on disk.

        Return whether a later run may load the weights again. NVIDIA's own TensorRT cannot.
        """
        self._save_kernels()
        if self._arena is not None:
            self._arena.close(self._stream)
            self._arena = None
        self._stream.sync()
        return hasattr(self._engine, "unload_weights") and self._engine.unload_weights()

    def _load_weights(self) -> None:
        if not getattr(self._engine, "weights_loaded", True):
            self._check(self._engine.load_weights(self._plan))

    def _context(self, shape: tuple[int, ...]) -> Any:
        """Return the context of the smallest profile that takes a batch of this shape."""
        rows, tokens = shape
        profiles = self._built.profiles
        fitting = [i for i, most in enumerate(profiles) if rows <= most[0] and tokens <= most[1]]
        if not fitting:
            raise DeviceError(f"no profile takes {rows} x {tokens} tokens: build engines again")
        number = fitting[0]
        if number not in self._contexts:
            context = self._engine.create_execution_context(self._config)
            if context is None:
                raise DeviceError(self._log.words())
            handle = int(self._stream.handle)
            self._check(context.set_optimization_profile_async(number, handle))
            self._contexts[number] = context
        return self._contexts[number]

    def _runtime_config(self) -> tuple[Any, Any]:
        """Return what contexts are made with, and the cache of kernels or None.

        Contexts get their memory for each batch, as much as its shape needs.
        """
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if not is_rtx(self._trt):
            return strategy, None
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        kinds = self._trt.DynamicShapesKernelSpecializationStrategy
        kind = kinds.EAGER if self._fixed_shapes else kinds.NONE
        config.dynamic_shapes_kernel_specialization_strategy = kind
        cache = config.create_runtime_cache()
        with suppress(OSError):  # none is there yet
            cache.deserialize(self._kernels.read_bytes())
        config.set_runtime_cache(cache)
        return config, cache

    @property
    def _kernels(self) -> Path:
        """The file of kernels that TensorRT for RTX has compiled for this GPU."""
        gpu = re.sub(r"\W+", "-", self._gpu.name)
        return self._built.path.with_name(f"kernels-{gpu}.bin")

    def _save_kernels(self) -> None:
        """Write compiled kernels beside the engine, for this user alone."""
        if self._cache is None:
            return
        content = bytes(memoryview(self._cache.serialize()))
        with suppress(OSError):  # such as a full disk: they are compiled again
            if not self._kernels.exists() or self._kernels.read_bytes() != content:
                write_whole(self._kernels, content)
                self._kernels.chmod(0o600)

    def _room(self, size: int) -> int:
        """Return the address of at least `size` bytes, which grow with the largest batch."""
        if self._arena is None or self._arena.size < size:
            if self._arena is not None:
                self._arena.close(self._stream)
                self._arena = None
            self._arena = self._pool.allocate(size, stream=self._stream)
        return int(self._arena.handle)

    def _on_gpu(self, array: npt.NDArray[Any], address: int) -> Any:
        return self._core.Buffer.from_handle(address, array.nbytes)

    def _check(self, done: bool) -> None:
        if not done:
            raise DeviceError(self._log.words())


def _on_host(core: Any, array: npt.NDArray[Any]) -> Any:
    return core.Buffer.from_handle(array.ctypes.data, array.nbytes, owner=array)


def _places(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, int], int]:
    """Return where each array begins in memory that holds all, and its size."""
    places = {}
    size = 0
    for name, array in arrays.items():
        places[name] = size
        size += -(-array.nbytes // _ALIGNED) * _ALIGNED
    return places, size


def _verified(engine: Engine) -> mmap.mmap:
    """Map an engine into memory; raises DeviceError if it is missing or has other bytes."""
    try:
        with open(engine.path, "rb") as file:
            plan = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        raise DeviceError(f"{engine.path}: {error}: build engines again") from None
    if hashlib.sha256(plan).hexdigest() != engine.sha256:
        raise DeviceError(f"{engine.path} is damaged: build engines again")
    return plan
