"""TensorRT's own builder: an ONNX graph in, an engine out, and the graph that ONNX Runtime opens instead.

**Not run on a GPU yet.** No other module talks to NVIDIA's package `tensorrt`. Names, arguments and types are
those of `tensorrt-cu13-bindings` 10.16.1. `make gpu-dry` runs this module with that package over stand-ins of
TensorRT's libraries, which compute nothing. What TensorRT makes of a graph is therefore not known.

The network is strongly typed: each tensor has the type that the graph gives it, and TensorRT lowers none. The
weakly typed network that ONNX Runtime's provider makes could put sums of float32 into half precision.
https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/advanced.html has the difference.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from vcs_export.errors import ExportError
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import import_onnxruntime
from vcs_runtime.util.atomic import write_whole

Shape = tuple[int, ...]
_REPEATED = 3  # messages of TensorRT that an error repeats: the last ones name the cause
_MICROSOFT = "com.microsoft"
_LOWEST = float(np.finfo(np.float32).min)


def import_tensorrt() -> Any:
    """Import NVIDIA's Python package of TensorRT; raises DeviceError if it is not the one that is needed."""
    major = nvidia.cuda_major(import_onnxruntime())
    wanted = (
        f"pip install 'tensorrt-cu{major}=={nvidia.TENSORRT_MAJOR}.*', which vcs-runtime[tensorrt] brings "
        "for CUDA 13; pip must reach NVIDIA's own index, pypi.nvidia.com"
    )
    try:
        import tensorrt
    except (ImportError, OSError) as error:  # OSError: a library that the package needs is missing
        raise DeviceError(f"building engines needs the Python package tensorrt ({error}): {wanted}") from None
    version = str(tensorrt.__version__)
    if int(version.partition(".")[0]) != nvidia.TENSORRT_MAJOR:
        raise DeviceError(
            f"ONNX Runtime loads engines of TensorRT {nvidia.TENSORRT_MAJOR}, and the Python package "
            f"tensorrt is {version}: {wanted}"
        )
    library = nvidia.tensorrt_version()
    if library and not f"{version}.".startswith(f"{library}."):
        raise DeviceError(
            f"the Python package tensorrt is {version}, and libnvinfer.so.{nvidia.TENSORRT_MAJOR} is "
            f"{library}: install both in one version, and take other copies off LD_LIBRARY_PATH"
        )
    return tensorrt


def build_plan(
    model: Path, shapes: Mapping[str, Sequence[Shape]], plan: Path, *, index: int, timing: Path
) -> None:
    """Build the engine of a graph on the GPU number `index`, and write it to the file `plan`.

    `shapes` has the least, usual and largest shape of each input. The file `timing` is read and written: with
    the speeds of kernels in it the next engine is built sooner. Errors (DeviceError, ExportError) have
    TensorRT's own words.
    """
    trt = import_tensorrt()
    _use_gpu(index)
    log = _logger(trt)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(os.fspath(model)):
        errors = [parser.get_error(number) for number in range(parser.num_errors)]
        words = [f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in errors]
        raise ExportError(f"TensorRT's parser refuses the graph: {'; '.join(words) or _words(log)}")
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default: float32 would have ten bits
    profile = builder.create_optimization_profile()
    for name, (least, usual, largest) in shapes.items():
        profile.set_shape(name, least, usual, largest)
    if config.add_optimization_profile(profile) < 0:
        raise ExportError(f"TensorRT refuses the range of shapes: {_words(log)}")
    timed = timing.read_bytes() if timing.is_file() else b""
    # A file of another version or GPU is refused, and replaced.
    if not config.set_timing_cache(config.create_timing_cache(timed), False):
        config.set_timing_cache(config.create_timing_cache(b""), False)
    serialised = builder.build_serialized_network(network, config)
    if serialised is None:
        raise ExportError(f"TensorRT builds no engine: {_words(log)}")
    # The engine lies in memory already; a second copy of 16 GB would not be welcome.
    with plan.open("wb") as file:
        file.write(memoryview(serialised))
    timing.parent.mkdir(parents=True, exist_ok=True)
    write_whole(timing, bytes(memoryview(config.get_timing_cache().serialize())))


def _use_gpu(index: int) -> None:
    """Make a GPU the one on which TensorRT builds; raises DeviceError."""
    name = f"libcudart.so.{nvidia.cuda_major(import_onnxruntime())}"
    try:
        code = ctypes.CDLL(name).cudaSetDevice(index)
    except OSError as error:
        raise DeviceError(f"tensorrt:{index}: {error}") from None
    if code:
        raise DeviceError(f"tensorrt:{index}: cudaSetDevice returns error {code}")


def _logger(trt: Any) -> Any:
    """Return a logger that keeps TensorRT's errors for our own messages, and prints nothing."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(message)

    return Log()


def _words(log: Any) -> str:
    return "; ".join(log.errors[-_REPEATED:]) or "it gives no reason"


def write_context(model: Path, engine: Path, architecture: str) -> Path:
    """Write `model.onnx` beside an engine: the graph that ONNX Runtime opens in place of `model`.

    Its one node, EPContext, names the engine's file ("embed mode" 0), because an engine inside the graph
    could have no more than 2 GB. The attributes are those that ONNX Runtime's provider itself writes.
    """
    source = ir.load(model).graph
    inputs, outputs = (
        [ir.Value(name=item.name, type=item.type, shape=item.shape) for item in items]
        for items in (source.inputs, source.outputs)
    )
    attributes: dict[str, int | str] = {
        "embed_mode": 0, "ep_cache_context": engine.name,
        "hardware_architecture": architecture.removeprefix("sm"), "main_context": 1, "max_size": 0,
        "onnx_model_filename": model.name, "source": "TensorrtExecutionProvider",
    }  # fmt: skip
    converted = ir.convenience.convert_attributes(attributes)
    node = ir.Node(_MICROSOFT, "EPContext", inputs, converted, outputs=outputs)
    graph = ir.Graph(inputs, outputs, nodes=[node], name="engine", opset_imports={"": 23, _MICROSOFT: 1})
    written = engine.with_name("model.onnx")
    ir.save(ir.Model(graph, ir_version=10), written)
    return written


def spell_out_attention(model: Path, folder: Path) -> Path:
    """Write a graph into a folder whose Attention nodes are products and Softmax; `model` if it has none.

    The folder gets links to the weights. TensorRT 10 turns Attention into one fused kernel, and builds no
    engine where it has none that fits (https://github.com/NVIDIA/TensorRT/issues/4705). Elementary operators
    can always be built.
    """
    import onnx
    from onnx import shape_inference

    proto = shape_inference.infer_shapes(onnx.load(model, load_external_data=False), data_prop=True)
    graph = ir.from_proto(proto).graph
    nodes = [node for node in graph if node.op_type == "Attention" and not node.domain]
    if not nodes:
        return model
    for node in nodes:
        _spell_out(graph, node)
    for path in model.parent.iterdir():
        if path.name != model.name and path.is_file():
            (folder / path.name).symlink_to(path.resolve())
    written = folder / model.name
    ir.save(ir.Model(graph, ir_version=proto.ir_version), written)
    return written


def _spell_out(graph: ir.Graph, node: ir.Node) -> None:
    """Put elementary operators in the place of a node with Q, K and V `(batch, heads, tokens, size)`."""
    query, key, value, *rest = node.inputs
    mask = rest[0] if rest else None
    causal = node.attributes.get("is_causal")
    size = query.shape[3] if query and query.shape else None
    if (causal and causal.as_int()) or any(rest[1:]) or not isinstance(size, int):
        raise ExportError(f"the node {node.name} (Attention) cannot be spelt out")
    scale = node.attributes.get("scale")
    tape = Tape()

    def op(
        kind: str, *inputs: ir.Value | None, **attributes: int | list[int] | ir.TensorProtocol
    ) -> ir.Value:
        return tape.op(kind, inputs, attributes)

    def constant(numbers: float | list[int]) -> ir.Value:
        kind = np.int64 if isinstance(numbers, list) else np.float32
        return op("Constant", value=ir.Tensor(np.array(numbers, kind)))

    def repeated(x: ir.Value | None) -> ir.Value:
        """Repeat heads of keys or values for the queries that share them."""
        groups, size = (op("Shape", x, start=axis, end=axis + 1) for axis in (1, 3))
        single = op("Concat", constant([0]), groups, constant([1, -1]), size, axis=0)
        copies = op("Concat", constant([1, 1]), op("Div", heads, groups), constant([1, 1]), axis=0)
        several = op("Expand", op("Reshape", x, single), copies)
        return op("Reshape", several, op("Concat", constant([0]), heads, constant([-1]), size, axis=0))

    factor = op("CastLike", constant(scale.as_float() if scale else 1 / math.sqrt(size)), query)
    heads = op("Shape", query, start=1, end=2)
    turned = op("Transpose", repeated(key), perm=[0, 1, 3, 2])
    # The factor comes first: a product of half precision has no more than 65,504.
    product = op("MatMul", op("Mul", query, factor), turned)
    scores = op("Cast", product, to=int(ir.DataType.FLOAT))
    if mask is not None:
        scores = op("Where", mask, scores, constant(_LOWEST))
    weights = op("CastLike", op("Softmax", scores, axis=-1), query)
    result = op("MatMul", weights, repeated(value))
    for number, new in enumerate(tape.nodes):
        new.name = new.outputs[0].name = f"{node.name}.spelt_out.{number}"
    ir.convenience.replace_nodes_and_values(graph, node, [node], tape.nodes, [node.outputs[0]], [result])
