"""Running ONNX models on the CPU with OpenVINO, in bfloat16 where the processor multiplies in it.

OpenVINO reads the `model.onnx` of a bundle. This module decides everything that changes a result:
the precision is set and then read back, activations are never quantised, and only the CPU may run
the model.

By default OpenVINO copies the weights of MatMulNBits while it reads a graph, and widens weights in
half precision to float32: NV-Embed would take 40 GB. The conversions here describe the same
products in another form, for which OpenVINO holds a single copy, arranged for the processor. It
reads the weights from the file where they are.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError, MissingExtraError
from vcs_runtime.util import process
from vcs_runtime.util.extras import require
from vcs_runtime.util.telemetry import refuse_openvino_telemetry

_HALVES = ("f16", "bf16")
# OpenVINO's mark of a conversion whose input stays as it is stored (`is_decompression`).
_STORED = "decompression_0"


def conversions() -> list[Any]:
    """Return extensions for OpenVINO's reader of ONNX; raises MissingExtraError.

    With them, the reader fails on forms of these operators that vcs-runtime does not write.
    """
    require("openvino", "openvino", "the device openvino")
    extension = import_module("openvino.frontend.onnx").ConversionExtension
    return [
        extension("MatMulNBits", "com.microsoft", _quantised_product),
        extension("Gemm", _product),
        extension("Gather", _rows),
    ]


def _operators() -> Any:
    return import_module("openvino.opset13")


def _quantised_product(node: Any) -> Any:
    """Convert `x W^T` with 8 bits a weight and a scale for each block of a row."""
    op = _operators()

    def constant(*numbers: int) -> Any:
        return op.constant(np.array(numbers))

    bits = node.get_attribute("bits")
    block = node.get_attribute("block_size")
    rows = node.get_attribute("N")
    columns = node.get_attribute("K")
    if node.get_input_size() != 3 or bits != 8:
        raise ValueError("MatMulNBits was not written by vcs-runtime")
    x, levels, scales = _inputs(node)
    zero = op.constant(np.float32(1 << (bits - 1)))
    numbers = op.subtract(op.convert(levels, "f32"), zero)
    scales = op.reshape(scales, constant(rows, -1, 1), False)
    weight = op.reshape(op.multiply(numbers, scales), constant(rows, -1), False)
    if columns % block:  # the last block of a row goes beyond the row's end
        weight = op.slice(weight, constant(0), constant(columns), constant(1), constant(1))
    return op.matmul(x, weight, False, True).outputs()


def _inputs(node: Any) -> list[Any]:
    return [node.get_input(i) for i in range(node.get_input_size())]


def _product(node: Any) -> Any:
    """Convert `x W^T + b`."""
    op = _operators()
    form = {name: node.get_attribute(name, default) for name, default in _GEMM.items()}
    if form != _GEMM | {"transB": 1}:
        raise ValueError("Gemm was not written by vcs-runtime")
    x, weight, *bias = _inputs(node)
    kind = _half(weight)
    if kind is None:
        product = op.matmul(x, weight, False, True)
        if bias:
            product = op.add(product, bias[0])
        return product.outputs()
    product = op.matmul(op.convert(x, "f32"), _stored(weight), False, True)
    if bias:
        product = op.add(product, op.convert(bias[0], "f32"))
    return op.convert(product, kind).outputs()


# Attributes of Gemm and their defaults.
_GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}


def _rows(node: Any) -> Any:
    """Convert a look-up of rows of a table."""
    op = _operators()
    table, indices = node.get_input(0), node.get_input(1)
    axis = op.constant(np.int64(node.get_attribute("axis", 0)))
    kind = _half(table)
    if kind is None:
        return op.gather(table, indices, axis).outputs()
    return op.convert(op.gather(_stored(table), indices, axis), kind).outputs()


def _half(value: Any) -> str | None:
    """Return the type of weights in half precision; None for other values."""
    kind: str = value.get_element_type().to_string()
    if kind in _HALVES and value.get_node().get_type_name() == "Constant":
        return kind
    return None


def _stored(weight: Any) -> Any:
    """Return weights as float32 that remain stored in half precision."""
    op = _operators()
    widened = op.convert(weight, "f32")
    widened.get_rt_info()[_STORED] = ""
    return widened


_SINCE = 2026  # first supported year of OpenVINO's releases
# OpenVINO's names of precisions, and ONNX Runtime's names of the types of inputs and outputs.
_HINTS = {"bf16": "bf16", "fp32": "f32"}
_TYPES = {"i64": "int64", "i32": "int32", "f16": "float16", "f32": "float", "bf16": "bfloat16"}
# Operators that do not change numbers.
_SAME_NUMBERS = {"Convert", "Reshape", "Squeeze", "Unsqueeze"}
# Messages of OpenVINO when memory does not suffice. Most of its failures are RuntimeErrors.
_NO_MEMORY = re.compile(r"Failed to allocate|out of memory|out_of_memory|bad_alloc", re.IGNORECASE)


class Tensor(NamedTuple):
    """An input or output of a model, described as ONNX Runtime does."""

    name: str
    type: str  # "tensor(int64)"
    shape: list[int | None]  # None: it depends on the batch


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry; raises MissingExtraError, also if it is too old."""
    refuse_openvino_telemetry()
    package = require("openvino", "openvino", "the device openvino")
    version = str(getattr(package, "__version__", ""))
    year = version.partition(".")[0]
    if year.isdigit() and int(year) < _SINCE:
        raise MissingExtraError(
            f"the device openvino needs openvino {_SINCE}.0 or later, but {version} is installed,"
            " which returns NaN in bf16: install `vcs-runtime[openvino]`"
        )
    return package


@cache
def _core(package: Any) -> Any:
    """Return OpenVINO's entry object, which is the same during the whole process.

    With AMX, loading the CPU plugin gives the current thread a larger stack for signals. This stack
    is unmapped when the last entry object and model are deleted. If another thread deletes them,
    the next signal in the first thread, such as Ctrl-C, is a segmentation fault.
    """
    return package.Core()


@cache
def _first_process() -> int:
    """Return the id of the process that opened the first model.

    Processes forked from it return the same id.
    """
    return os.getpid()


def _refuse_forked() -> None:
    """Raise DeviceError in a process whose parent had opened a model.

    A fork does not copy the threads of OpenVINO, and the child would wait for them.
    """
    if _first_process() != os.getpid():
        raise DeviceError(
            "openvino: this process was forked from one that had used OpenVINO, whose threads are"
            " not copied: start processes with the method spawn, or use device cpu"
        )


def best_precision() -> tuple[str, str]:
    """Return the precision for this processor, "bf16" or "fp32", and the reason.

    Raises MissingExtraError if OpenVINO is not installed.
    """
    capabilities = _core(import_openvino()).get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if "BF16" not in capabilities:
        return "fp32", "this processor does not multiply in bf16"
    if is_slow_in_bf16():
        return "fp32", "a Xeon without AMX is slower in bf16"
    return "bf16", "this processor multiplies in bf16"


def bf16_instructions() -> str:
    """Return the instructions with which this processor multiplies in bf16.

    The result is "amx" or "avx512", or "" if the instructions are unknown.
    """
    words = _processor()
    if "amx_bf16" in words:
        return "amx"
    if "avx512_bf16" in words:
        return "avx512"
    return ""


def is_slow_in_bf16() -> bool:
    """Whether this processor is a Xeon with AVX-512 BF16 alone (docs/guide/processors.md)."""
    return bf16_instructions() == "avx512" and "GenuineIntel" in _processor()


def _processor() -> set[str]:
    """Return words about this processor, its vendor and flags among them."""
    try:
        return set(Path("/proc/cpuinfo").read_text("utf-8").split())
    except OSError:  # not Linux
        return set()


class OpenVINOSession:
    """An ONNX model compiled for the CPU, used like a session of ONNX Runtime.

    Several threads may use it.

    `precision` is "bf16" or "fp32", and `threads` None means every core. `shown` are inner values
    of the graph that become outputs too. Raises BundleError if the file is not a model, and
    DeviceError if OpenVINO cannot run it in this way.
    """

    def __init__(
        self, model: Path, precision: str, threads: int | None = None, shown: Sequence[str] = ()
    ) -> None:
        _refuse_forked()
        core = _core(import_openvino())
        graph = _read(model)
        _count_in_integers(graph)
        if shown:
            graph.add_outputs(list(shown))
        settings = {
            "INFERENCE_PRECISION_HINT": _HINTS[precision],
            "INFERENCE_NUM_THREADS": process.threads_or_cores(threads),
            # One run at a time takes all threads. They are not bound to cores, which other programs
            # may need.
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
            # Otherwise OpenVINO quantises the other factor of products with quantised weights.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
        try:
            compiled = core.compile_model(graph, "CPU", settings)
            _check(compiled, precision)
            compiled.create_infer_request()  # the first request may fail for the same reasons
        except (RuntimeError, MemoryError) as error:
            if _is_no_memory(error):
                # Not a DeviceMemoryError: smaller batches would not help.
                raise DeviceError(
                    f"openvino: not enough memory for {model}: {_message(error)}"
                ) from None
            advice = ". The device openvino:fp32 needs no bf16." if precision == "bf16" else ""
            raise DeviceError(
                f"openvino: OpenVINO cannot run {model} in {precision}: {_message(error)}{advice}"
            ) from None
        self._compiled = compiled
        self._inputs = list(map(_tensor, compiled.inputs))
        self._outputs = list(map(_tensor, compiled.outputs))
        self._limits = dict(_table_sizes(graph))
        self._lock = threading.Lock()

    def get_inputs(self) -> list[Tensor]:
        """Return the inputs of the model."""
        return self._inputs

    def get_outputs(self) -> list[Tensor]:
        """Return the outputs of the model."""
        return self._outputs

    def run(self, outputs: Sequence[str], inputs: dict[str, npt.NDArray[Any]]) -> list[Any]:
        """Run one batch and return one array for each name in `outputs`.

        Raises DeviceMemoryError if memory does not suffice for the batch, else DeviceError.
        """
        _refuse_forked()
        for name, size in self._limits.items():
            # OpenVINO does not check indices, and would read memory after the table.
            largest = int(np.max(inputs[name], initial=0))
            if largest >= size:
                raise DeviceError(f"{name} holds {largest}, but the model's table has {size} rows")
        try:
            # One run at a time, each with a new request. A used request may silently keep its last
            # output if there is no memory for the new one.
            with self._lock:
                results = self._compiled.create_infer_request().infer(inputs)
                # Copies, which the next run does not change.
                arrays = [results[name] for name in outputs]
        except (RuntimeError, MemoryError) as error:
            kind = DeviceMemoryError if _is_no_memory(error) else DeviceError
            raise kind(_message(error)) from None
        rows = len(next(iter(inputs.values())))
        if rows and any(array.size == 0 for array in arrays):
            raise DeviceMemoryError("there is no output, probably because memory does not suffice")
        return arrays


def _read(model: Path) -> Any:
    try:
        return _converted(model, conversions())
    except DeviceError:  # the graph was not written by vcs-runtime
        return _converted(model, [])


def _converted(model: Path, extensions: Iterable[Any]) -> Any:
    """Read a graph with OpenVINO's reader of ONNX, without trying its readers of other formats."""
    reader = import_openvino().frontend.FrontEndManager().load_by_framework("onnx")
    for extension in extensions:
        reader.add_extension(extension)
    try:
        graph = reader.load(str(model))
    except Exception as error:  # OpenVINO's exceptions share no base class but Exception
        raise BundleError(f"{model}: OpenVINO cannot load it: {_message(error)}") from None
    try:
        return reader.convert(graph)
    except Exception as error:
        raise DeviceError(f"openvino: OpenVINO cannot run {model}: {_message(error)}") from None


def _count_in_integers(graph: Any) -> None:
    """Sum integers as integers where a graph converts them to floats for the sum.

    As floats in bf16, sums above 256 would be rounded.

    Graphs of XLM-RoBERTa number their tokens with such sums, since TensorRT cannot sum integers.
    """
    operators = import_openvino().opset13
    for node in graph.get_ops():
        if node.get_type_name() != "CumSum":
            continue
        source = node.input_value(0).get_node()
        if source.get_type_name() != "Convert":
            continue
        integers = source.input_value(0)
        if not integers.get_element_type().is_integral():
            continue
        counted = operators.cum_sum(integers, node.input_value(1), **node.get_attributes())
        for target in node.output(0).get_target_inputs():
            reader = target.get_node()
            if reader.get_type_name() == "Convert" and reader.get_element_type().is_integral():
                target.replace_source_output(counted.output(0))


def _check(compiled: Any, precision: str) -> None:
    """Raise DeviceError unless a compiled model runs on the CPU and in the requested precision."""
    devices = list(compiled.get_property("EXECUTION_DEVICES"))
    if devices != ["CPU"]:
        raise DeviceError(
            f"openvino: OpenVINO runs the model on {', '.join(devices)}, not on the CPU"
        )
    actual = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if actual != _HINTS[precision]:
        raise DeviceError(f"openvino: OpenVINO runs the model in {actual}, not in {precision}")


def _tensor(port: Any) -> Tensor:
    shape = [size.get_length() if size.is_static else None for size in port.partial_shape]
    kind = port.element_type.to_string()
    return Tensor(port.any_name, f"tensor({_TYPES.get(kind, kind)})", shape)


def _table_sizes(graph: Any) -> Iterable[tuple[str, int]]:
    """Yield the inputs that are indices into a table of weights, with its number of rows."""
    for node in graph.get_ops():
        if node.get_type_name() != "Gather":
            continue
        indices = node.input_value(1).get_node()
        while indices.get_type_name() in _SAME_NUMBERS:
            indices = indices.input_value(0).get_node()
        rows = node.input_value(0).partial_shape[0]
        if indices.get_type_name() == "Parameter" and rows.is_static:
            yield indices.friendly_name, rows.get_length()


def _is_no_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))


def _message(error: Exception) -> str:
    """Return the message of an OpenVINO exception on one line, without places in its source."""
    lines = []
    for line in str(error).splitlines():
        text = line.strip()
        if text and not text.startswith("Exception from src"):
            lines.append(text)
    return " ".join(lines) or type(error).__name__
