"""TensorRT engines on a GPU, through NVIDIA's Python bindings, with memory by NVIDIA's cuda-core.

**No engine has run on a GPU yet**: no card that TensorRT for RTX supports was at hand. Tests run
this module over a fake of both packages (`tests/lib/support/fake_tensorrt.py`).

Where TensorRT for RTX is not installed, NVIDIA's own package `tensorrt` takes its place. It has the
same calls, and data centre GPUs such as H100 and B200, and builds engines on the GPU itself.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import DeviceError, MissingExtraError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.openvino import Tensor
from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.extras import require

#: What an engine of TensorRT for RTX is built for: every compute capability that it offers but 7.5,
#: for which it compiles no product in float32.
CAPABILITIES: Final = ("sm80", "sm86", "sm89", "sm120", "sm121")
_NEEDED = ("tensorrt", "TensorRT")  # the extra, and what it is for
_CUDA = 13  # major version of CUDA that the extra's packages are built for
_REPEATED = 3  # messages of TensorRT that an error repeats: the last ones name the cause
_ALIGNED = 256  # TensorRT wants its memory at multiples of it
_TYPES = {"FLOAT": "float", "HALF": "float16", "INT64": "int64"}


class Engine(NamedTuple):
    """A TensorRT engine of a model."""

    path: Path
    sha256: str
    profiles: tuple[tuple[int, int], ...]
    """Rows and tokens of each profile's largest batch; shortest texts come first."""


def import_tensorrt() -> Any:
    """Import TensorRT for RTX, or else NVIDIA's own TensorRT; raises MissingExtraError."""
    try:
        return require("tensorrt_rtx_bindings", *_NEEDED)
    except MissingExtraError:
        if find_spec("tensorrt") is None:
            raise
        return require("tensorrt", *_NEEDED)


def is_rtx(trt: Any) -> bool:
    """Whether the imported package is TensorRT for RTX."""
    return hasattr(trt, "ComputeCapability")


def release() -> str:
    """Return the name of the installed TensorRT in signatures, and its version."""
    trt = import_tensorrt()
    return f"{'tensorrt-rtx' if is_rtx(trt) else 'tensorrt'} {trt.__version__}"


def targets(index: int = 0) -> list[str]:
    """Return what an engine is built for: capabilities, or for NVIDIA's own TensorRT this GPU."""
    if is_rtx(import_tensorrt()):
        return list(CAPABILITIES)
    gpu = nvidia.gpu(index)
    return [f"{gpu.name} ({gpu.architecture})"]


def unfit(index: int) -> str:
    """Return why a GPU can run no engine, and advice; "" if nothing hinders.

    Raises MissingExtraError without the packages, and DeviceError if the driver shows no such GPU.
    """
    trt = import_tensorrt()
    require("cuda.core", *_NEEDED)
    if problem := nvidia.hindrance():
        return problem
    gpu = nvidia.gpu(index)
    if not is_rtx(trt):
        return ""
    old = nvidia.old_driver(_CUDA, f"TensorRT for RTX {trt.__version__}")
    if old or gpu.architecture in CAPABILITIES:
        return old
    return (
        f"{gpu.name} is {gpu.architecture}, but TensorRT for RTX builds engines only for"
        f" {', '.join(CAPABILITIES)}: use cuda:{index}, or NVIDIA's package tensorrt in place of"
        " tensorrt-rtx-cu13-bindings"
    )


def logger(trt: Any, file: TextIO | None = None) -> Any:
    """Return a logger for TensorRT, which writes to `file` if there is one, and prints nothing."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if file:
                file.write(f"{severity.name} {message}\n")
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(message)

        def words(self) -> str:
            return "; ".join(self.errors[-_REPEATED:]) or "TensorRT gives no reason"

    return Log()


class RtxSession:
    """An engine on a GPU, used like a session of ONNX Runtime, by one thread.

    This thread's current GPU becomes the engine's.
    """

    def __init__(self, engine: Engine, index: int, memory: int | None) -> None:
        """Load an engine; `memory` limits it in bytes. Raises DeviceError or cuda-core's errors."""
        self._trt = trt = import_tensorrt()
        self._core = core = require("cuda.core", *_NEEDED)
        self._profiles = engine.profiles
        gpu = re.sub(r"\W+", "-", nvidia.gpu(index).name)
        # Kernels that TensorRT for RTX has compiled for this kind of GPU.
        self._kernels = engine.path.with_name(f"kernels-{gpu}.bin")
        self._plan = _verified(engine)
        device = core.Device(index)
        device.set_current()
        self._stream = device.create_stream()
        # A pool of our own keeps to a limit, and gives freed memory back; 0 is no limit.
        room = 0 if memory is None else max(1, memory - len(self._plan))
        options = core.DeviceMemoryResourceOptions(max_size=room)
        self._pool = core.DeviceMemoryResource(device, options=options)
        self._arena: Any = None
        self._log = logger(trt)
        runtime = trt.Runtime(self._log)
        if is_rtx(trt):
            runtime.defer_weights_loading = True  # so that weights can be unloaded
        self._engine = runtime.deserialize_cuda_engine(self._plan)
        self._check(self._engine is not None)
        self._contexts: dict[int, Any] = {}
        self._config, self._cache = self._runtime_config()
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        is_output = trt.TensorIOMode.OUTPUT
        self._outputs = [name for name in names if self._engine.get_tensor_mode(name) == is_output]
        self._inputs = [name for name in names if name not in self._outputs]

    def get_inputs(self) -> list[Tensor]:
        """Return the inputs of the model."""
        return list(map(self._tensor, self._inputs))

    def get_outputs(self) -> list[Tensor]:
        """Return the outputs of the model."""
        return list(map(self._tensor, self._outputs))

    def _tensor(self, name: str) -> Tensor:
        kind = _TYPES[self._engine.get_tensor_dtype(name).name]
        return Tensor(name, f"tensor({kind})", list(self._engine.get_tensor_shape(name)))

    def run(
        self, outputs: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]]
    ) -> list[npt.NDArray[Any]]:
        """Run one batch and return one array for each name in `outputs`.

        Raises DeviceError, or cuda-core's error if memory does not suffice.
        """
        if not getattr(self._engine, "weights_loaded", True):
            self._check(self._engine.load_weights(self._plan))
        context = self._context(*inputs["input_ids"].shape)
        arrays = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        for name, array in arrays.items():
            self._check(context.set_input_shape(name, array.shape))
        for name in self._outputs:
            kind = self._trt.nptype(self._engine.get_tensor_dtype(name))
            arrays[name] = np.empty(tuple(context.get_tensor_shape(name)), kind)
        # All arrays lie in one piece of memory, before what TensorRT works with.
        sizes = [-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays.values()]
        workspace = context.update_device_memory_size_for_shapes()
        start = self._room(sum(sizes) + workspace)
        context.set_device_memory(start + sum(sizes), workspace)
        addresses = accumulate(sizes, initial=start)
        buffer = self._core.Buffer.from_handle
        buffers = {}
        for (name, array), address in zip(arrays.items(), addresses, strict=False):
            self._check(context.set_tensor_address(name, address))
            host = buffer(array.ctypes.data, array.nbytes, owner=array)
            buffers[name] = host, buffer(address, array.nbytes)
        for host, gpu in map(buffers.__getitem__, self._inputs):
            gpu.copy_from(host, stream=self._stream)
        self._check(context.execute_async_v3(int(self._stream.handle)))
        for host, gpu in map(buffers.__getitem__, self._outputs):
            gpu.copy_to(host, stream=self._stream)
        self._stream.sync()
        return [arrays[name] for name in outputs]

    def release(self) -> bool:
        """Free the memory of weights and batches, and keep compiled kernels on disk.

        Return whether a later run loads the weights again. NVIDIA's own TensorRT cannot.
        """
        self._drop_arena()
        self._stream.sync()
        if self._cache is None:
            return False
        with suppress(OSError):  # such as a full disk: they are compiled again
            write_whole(self._kernels, bytes(memoryview(self._cache.serialize())))
            self._kernels.chmod(0o600)  # this user alone
        return bool(self._engine.unload_weights())

    def _context(self, rows: int, tokens: int) -> Any:
        """Return the context of the smallest profile that takes a batch of this shape."""
        for number, (most_rows, most_tokens) in enumerate(self._profiles):
            if rows <= most_rows and tokens <= most_tokens:
                if number not in self._contexts:
                    context = self._engine.create_execution_context(self._config)
                    self._check(context is not None)
                    stream = int(self._stream.handle)
                    self._check(context.set_optimization_profile_async(number, stream))
                    self._contexts[number] = context
                return self._contexts[number]
        raise DeviceError(f"the engine does not fit {rows} x {tokens} tokens: build engines again")

    def _runtime_config(self) -> tuple[Any, Any]:
        """Return what contexts are made with, and the cache of kernels or None.

        Contexts get their memory for each batch, as much as its shape needs. One kernel runs all
        shapes: a kernel that is compiled in the background for one shape would take its place at
        any time, and round differently.
        """
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if not is_rtx(self._trt):
            return strategy, None
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        kinds = self._trt.DynamicShapesKernelSpecializationStrategy
        config.dynamic_shapes_kernel_specialization_strategy = kinds.NONE
        cache = config.create_runtime_cache()
        if self._kernels.exists():
            cache.deserialize(self._kernels.read_bytes())
        config.set_runtime_cache(cache)
        return config, cache

    def _room(self, size: int) -> int:
        """Return the address of at least `size` bytes, which grow with the largest batch."""
        if self._arena is None or self._arena.size < size:
            self._drop_arena()
            self._arena = self._pool.allocate(size, stream=self._stream)
        return int(self._arena.handle)

    def _drop_arena(self) -> None:
        if self._arena is not None:
            self._arena.close(self._stream)
            self._arena = None

    def _check(self, done: bool) -> None:
        if not done:
            raise DeviceError(self._log.words())


def _verified(engine: Engine) -> mmap.mmap:
    """Map an engine into memory; raises OSError, or DeviceError if it has other bytes."""
    with open(engine.path, "rb") as file:
        plan = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hashlib.sha256(plan).hexdigest() != engine.sha256:
        raise DeviceError(f"{engine.path} is damaged: build engines again")
    return plan
