"""Opening models with ONNX Runtime, OpenVINO or TensorRT, and running them on one batch.

`vcs_runtime.inference.session` uses these functions. It releases memory, and makes batches smaller
where memory does not suffice.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vcs_runtime.bundle.onnx_check import opset_of
from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import (
    CPU,
    CUDA,
    ERRORS,
    Device,
    available_providers,
    import_onnxruntime,
)
from vcs_runtime.inference.openvino import OpenVINOSession
from vcs_runtime.inference.rtx_session import RtxSession
from vcs_runtime.inference.token_vectors import shown_graph
from vcs_runtime.util import process
from vcs_runtime.util.process import OPENING

if TYPE_CHECKING:
    import onnxruntime as ort

    ModelSession: TypeAlias = ort.InferenceSession | OpenVINOSession | RtxSession

# From this version of the standard operators on, a graph needs this release. 1.24 opens such
# graphs, but computes attention over padded texts wrongly (tests/inference/test_releases.py).
_OPERATORS, _RELEASE = 24, (1, 25)


def old_release(model: Path) -> str:
    """Return an error message if the installed ONNX Runtime is too old for a graph, else "".

    Raises BundleError if the file is not an ONNX graph, and MissingExtraError without ONNX Runtime.
    """
    installed: str = import_onnxruntime().__version__
    numbers = tuple(map(int, re.findall(r"\d+", installed)[:3]))
    if opset_of(model) < _OPERATORS or numbers >= _RELEASE:
        return ""
    release = ".".join(map(str, _RELEASE))
    package = "onnxruntime-gpu" if CUDA in available_providers() else "onnxruntime"
    return (
        f"{model} needs ONNX Runtime {release} or later, but {installed} is installed: pip install"
        f" --upgrade '{package}>={release}'"
    )


# Messages of ONNX Runtime when memory does not suffice: from its arena, from the driver, and from
# libraries that take workspace; from TensorRT and cuda-core. ONNX Runtime has one type of exception
# for all failures.
_NO_MEMORY = re.compile(
    r"Failed to allocate memory for requested buffer|smaller than requested bytes"
    r"|out.?of.?memory|bad_alloc"
    r"|cudaMalloc\w* failed|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
    re.IGNORECASE,
)
# Setting of a session that records the provider of each node, for `_refuse_cpu_work`.
_RECORD = ("session.record_ep_graph_assignment_info", "1")
# ONNX Runtime itself computes shapes on the CPU. The CUDA provider has kernels of all these
# operators, so that under their names the CPU computes nothing but shapes.
_SHAPE_OPERATORS = frozenset(
    """
    Shape Size Constant ConstantOfShape Range Cast Identity
    Reshape Squeeze Unsqueeze Concat Slice Gather Expand Where
    Equal Less LessOrEqual Greater GreaterOrEqual And Or Not
    Add Sub Mul Div Mod Min Max ReduceMax ReduceProd
    """.split()
)


def provider_options(device: Device) -> list[tuple[str, dict[str, str]]]:
    """Return the execution providers of a session, and their options, as ONNX Runtime takes them.

    The CUDA arena doubles, up to `device.memory`. If it grew by the size of each request instead,
    batches of many shapes would leave pieces that fit no other batch, and it would take twice the
    memory (docs/benchmarks/gpu.md). TF32 is off, so that float32 graphs keep their precision. Other
    options keep their defaults: `sdpa_kernel` prefers flash attention, `do_copy_in_default_stream`
    must stay on (onnxruntime issue 4829), and CUDA graphs need shapes that do not change.
    """
    if device.provider == CPU:
        return [(CPU, {})]
    # GPU 0 is the default, and is not named. Otherwise ONNX Runtime from 1.26 on would look for a
    # provider that was registered as a plugin, and warn on standard error that it does not exist.
    number = {"device_id": str(device.index)} if device.index else {}
    cuda = {**number, "arena_extend_strategy": "kNextPowerOfTwo", "use_tf32": "0"}
    if device.memory is not None:
        cuda["gpu_mem_limit"] = str(device.memory)
    return [(CUDA, cuda)]


def open_session(
    model: Path,
    device: Device,
    threads: int | None = None,
    *,
    half: bool = False,
    shown: Sequence[str] = (),
) -> ModelSession:
    """Load an ONNX model on a device, with its weights beside it; raises DeviceError, BundleError.

    `threads` is the number of CPU threads, None for every core. With `half`, the weights are large
    and in half precision, and a CPU, which computes in single precision, must not hold them in
    both. `shown` are inner values of the graph that become outputs too.
    """
    if device.provider_name == "openvino":
        return OpenVINOSession(model, device.precision, threads, shown)
    if device.engine:
        if shown:
            raise DeviceError("tensorrt: an engine has no vectors of tokens: use --device cuda:N")
        try:
            with OPENING:
                return RtxSession(device.engine, device.index, device.memory)
        except Exception as error:  # cuda-core's and the file's, too
            raise DeviceError(f"tensorrt:{device.index}: {error}") from None
    ort = import_onnxruntime()
    hindrance = old_release(model)
    if hindrance:
        raise DeviceError(f"{device.provider_name}: {hindrance}")
    options = _session_options(device, threads, half)
    source: str | bytes = os.fspath(model)
    if shown:
        source = shown_graph(model, shown)
        folder = os.fspath(model.parent)
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
    name = device.provider_name
    try:
        with OPENING:
            session = ort.InferenceSession(
                source, options, providers=provider_options(device), enable_fallback=False
            )
    except Exception as error:
        # The exception types of ONNX Runtime share no base class but Exception.
        if _NO_MEMORY.search(str(error)):
            # Not a DeviceMemoryError: smaller batches would not help.
            raise DeviceError(
                f"{name}: not enough memory for {model}{_pytorch_advice(device)}: {error}"
            ) from None
        if device.is_gpu:
            raise DeviceError(
                f"{name}: ONNX Runtime could not start {device.provider}: {error}{_lacking(device)}"
            ) from None
        raise BundleError(f"{model}: ONNX Runtime cannot load it: {error}") from None
    if device.provider not in session.get_providers():
        raise DeviceError(
            f"{name}: ONNX Runtime fell back to {', '.join(session.get_providers())}; its"
            f" {device.provider} is installed, but lacks a library{_lacking(device)}"
        )
    if device.is_gpu:
        _refuse_cpu_work(session, name, model)
    return session


def _session_options(device: Device, threads: int | None, half: bool) -> ort.SessionOptions:
    """Return the options of a session, as `open_session` describes them."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = ERRORS
    options.intra_op_num_threads = process.threads_or_cores(threads)
    # Batches change shape all the time: a memory plan per shape would never be used again.
    options.enable_mem_pattern = False
    if device.is_gpu:
        # Weights are allocated at their size, outside the arena. The arena would round their size
        # up, and never free it.
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        options.add_session_config_entry(*_RECORD)
        # This optimisation would give attention in SaT a kernel that needs cuDNN: 517 MB that
        # nothing else needs.
        options.add_session_config_entry(
            "optimization.disable_specified_optimizers", "BiasSoftmaxFusion"
        )
    elif half:
        # An optimised graph would hold its weights in single precision, twice the checkpoint.
        # Without optimisation, each tensor is widened just before it is used, and its memory is
        # freed after that.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
    return options


def _refuse_cpu_work(session: ort.InferenceSession, name: str, model: Path) -> None:
    """Check that a GPU runs all nodes of a session, except nodes that compute shapes.

    Raises DeviceError if the CPU would run other nodes.

    ONNX Runtime gives each node for which a provider has no kernel to the CPU, and reports this
    only in its log. Scores would be right, at a fraction of the speed.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return  # a release before 1.24
    operators: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        if part.ep_name == CPU:
            operators.update(node.op_type for node in part.get_nodes())
    counts = [
        f"{kind} ({count})"
        for kind, count in sorted(operators.items())
        if kind not in _SHAPE_OPERATORS
    ]
    if counts:
        raise DeviceError(
            f"{name}: ONNX Runtime has no GPU kernel for these nodes of {model}, so the CPU would"
            f" run them: {', '.join(counts)}; use `--device cpu`, or export the model in fp16"
        )


def _pytorch_advice(device: Device) -> str:
    """Return how to free the GPU memory that PyTorch holds in this process, or ""."""
    if device.is_gpu and "torch" in sys.modules:
        return " (PyTorch keeps freed memory: call torch.cuda.empty_cache() first)"
    return ""


def _lacking(device: Device) -> str:
    """Return the end of an error with the missing libraries, or why the driver does not start."""
    lacking = nvidia.missing(import_onnxruntime())
    if lacking:
        return f"; missing: {lacking}"
    hindrance = nvidia.hindrance()
    return f"; {hindrance}" if hindrance else ""


def run_session(
    session: ModelSession, outputs: Sequence[str], inputs: dict[str, Any], *, shrink: bool = False
) -> list[Any]:
    """Run one batch, and return one array for each name in `outputs`.

    `inputs` holds the arrays by input name.

    With `shrink` a GPU frees memory of the arena that this run did not use. Raises
    DeviceMemoryError if memory does not suffice for the batch, else DeviceError. On a GPU, inputs
    and outputs are bound to its memory: each crosses the bus once, and nothing waits for it in
    between. Inputs have some hundred kilobytes, so that pinned memory would save microseconds only.
    """
    if isinstance(session, OpenVINOSession):
        try:
            return session.run(outputs, inputs)
        except DeviceError as error:
            raise type(error)(f"OpenVINO failed on {_shapes(inputs)}: {error}") from None
    name = "TensorRT" if isinstance(session, RtxSession) else "ONNX Runtime"
    try:
        if isinstance(session, RtxSession):
            return session.run(outputs, inputs)
        options = import_onnxruntime().RunOptions()
        options.log_severity_level = 4  # errors are in the exception already
        if CUDA in session.get_providers():
            index = int(session.get_provider_options()[CUDA]["device_id"])
            if shrink:
                options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{index}")
            return run_bound(session, outputs, inputs, options, "cuda", index)
        return list(session.run(list(outputs), inputs, options))
    except Exception as error:  # see open_session
        kind = DeviceMemoryError if _NO_MEMORY.search(str(error)) else DeviceError
        raise kind(f"{name} failed on {_shapes(inputs)}: {str(error).strip()}") from None


def _shapes(inputs: dict[str, Any]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in inputs.items())


def run_bound(
    session: ort.InferenceSession,
    outputs: Sequence[str],
    inputs: dict[str, Any],
    options: Any,
    kind: str,
    index: int,
) -> list[Any]:
    """Run a session with inputs and outputs in the memory of a device.

    The device has number `index`, and its `kind` is "cuda" or "cpu".
    """
    ort = import_onnxruntime()
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, kind, index))
    for name in outputs:
        binding.bind_output(name, kind, index)
    session.run_with_iobinding(binding, options)
    return list(binding.copy_outputs_to_cpu())
