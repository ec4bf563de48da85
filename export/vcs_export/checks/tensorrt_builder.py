"""Builder of TensorRT engines from ONNX graphs, and of the graph that ONNX Runtime opens instead.

**Not run on a GPU yet.** `make gpu-dry` runs this module with NVIDIA's package 10.16.1 over
stand-ins of TensorRT's libraries, which compute nothing. So nobody knows what TensorRT makes of a
graph.

The network is strongly typed: each tensor has the type that the graph gives it, and TensorRT lowers
none. The weakly typed network that ONNX Runtime's provider makes could put sums of float32 into
half precision.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from vcs_export.errors import ExportError
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import import_onnxruntime

Shape = tuple[int, ...]
_REPEATED = 3  # messages of TensorRT that an error repeats: the last ones name the cause
_MICROSOFT = "com.microsoft"


def import_tensorrt() -> Any:
    """Import the Python package `tensorrt`; raise DeviceError unless the needed version imports."""
    major = nvidia.cuda_major(import_onnxruntime())
    wanted = (
        f"pip install 'tensorrt-cu{major}=={nvidia.TENSORRT_MAJOR}.*', which vcs-runtime[tensorrt]"
        " brings for CUDA 13; pip must reach NVIDIA's own index, pypi.nvidia.com"
    )
    try:
        import tensorrt
    except (ImportError, OSError) as error:  # OSError: a library that the package needs is missing
        raise DeviceError(
            f"building engines needs the Python package tensorrt ({error}): {wanted}"
        ) from None
    version = str(tensorrt.__version__)
    if int(version.partition(".")[0]) != nvidia.TENSORRT_MAJOR:
        raise DeviceError(
            f"ONNX Runtime loads engines of TensorRT {nvidia.TENSORRT_MAJOR}, and the Python"
            f" package tensorrt is {version}: {wanted}"
        )
    library = nvidia.tensorrt_version()
    if library and not f"{version}.".startswith(f"{library}."):
        raise DeviceError(
            f"the Python package tensorrt is {version}, and libnvinfer.so.{nvidia.TENSORRT_MAJOR}"
            f" is {library}: install both in one version, and take other copies off LD_LIBRARY_PATH"
        )
    return tensorrt


def build_plan(
    model: Path, shapes: Mapping[str, Sequence[Shape]], plan: Path, *, index: int
) -> None:
    """Build the engine of a graph on the GPU number `index`, and write it to the file `plan`.

    `shapes` has the least, usual and largest shape of each input. Errors (DeviceError, ExportError)
    have TensorRT's own words.
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
    serialised = builder.build_serialized_network(network, config)
    if serialised is None:
        raise ExportError(f"TensorRT builds no engine: {_words(log)}")
    plan.write_bytes(memoryview(serialised))


def _use_gpu(index: int) -> None:
    """Make a GPU the one on which TensorRT builds; raises DeviceError."""
    name = f"libcudart.so.{nvidia.cuda_major(import_onnxruntime())}"
    if code := ctypes.CDLL(name).cudaSetDevice(index):
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
    """Write the graph beside an engine that ONNX Runtime opens in place of `model`.

    Its one node, EPContext, names the engine's file ("embed mode" 0), because an engine inside the
    graph could have no more than 2 GB. The attributes are those that ONNX Runtime's provider itself
    writes.
    """
    source = ir.load(model).graph
    inputs, outputs = (
        [ir.Value(name=item.name, type=item.type, shape=item.shape) for item in items]
        for items in (source.inputs, source.outputs)
    )
    attributes: dict[str, int | str] = {
        "embed_mode": 0,
        "ep_cache_context": engine.name,
        "hardware_architecture": architecture.removeprefix("sm"),
        "main_context": 1,
        "max_size": 0,
        "onnx_model_filename": model.name,
        "source": "TensorrtExecutionProvider",
    }
    converted = ir.convenience.convert_attributes(attributes)
    node = ir.Node(_MICROSOFT, "EPContext", inputs, converted, outputs=outputs)
    graph = ir.Graph(
        inputs, outputs, nodes=[node], name="engine", opset_imports={"": 23, _MICROSOFT: 1}
    )
    written = engine.with_suffix(".onnx")
    ir.save(ir.Model(graph, ir_version=10), written)
    return written
