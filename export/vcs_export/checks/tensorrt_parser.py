"""Whether TensorRT's parser takes a graph, by the graph alone, without TensorRT or a GPU.

The facts are those of onnx-tensorrt's operator list for TensorRT 10.15 (docs/operators.md of
https://github.com/onnx/onnx-tensorrt, Apache-2.0): operators, the types they take, and restrictions. The list
proves nothing: only `vcs-runtime engine check`, with the libraries, does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx_ir import DataType

from vcs_export.errors import ExportError

if TYPE_CHECKING:
    import onnx

OPSETS = range(9, 25)
_FLOATS = {DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16}
_NUMBERS = _FLOATS | {DataType.INT32, DataType.INT64}
_ANY = _NUMBERS | {DataType.BOOL}
_QUANTISED = {DataType.INT8, DataType.INT4, DataType.FLOAT8E4M3FN, DataType.FLOAT4E2M1}
# Types of the first input, by operator. Operators on images and sequences are left out: no graph here has
# them.
_TYPES = {
    "Acos Asin Atan Ceil Clip Cos Cosh CumSum Elu Erf Exp Floor Gemm HardSigmoid HardSwish "
    "LayerNormalization LeakyRelu Log LogSoftmax LpNormalization MatMul QuantizeLinear RMSNormalization "
    "Reciprocal RotaryEmbedding Round Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh": _FLOATS,
    "Abs Add ArgMax ArgMin Div Equal Gelu Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Neg "
    "Pad Pow Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare Relu ScatterElements ScatterND Sign Sub Sum TopK": _NUMBERS,
    "And Not Or Xor": {DataType.BOOL},
    "Cast CastLike Concat Constant ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity "
    "OneHot Reshape Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze Where": _ANY,
    "Attention": _FLOATS | {DataType.INT8, DataType.FLOAT8E4M3FN},
    "DequantizeLinear": _QUANTISED,
}
OPERATORS = {name: types for names, types in _TYPES.items() for name in names.split()}
_WITH_GRAPHS = ("If", "Loop")  # they take numbers and bools, and each operator in their graphs is looked at
_CONSTANT_AXES = ("Squeeze", "Unsqueeze")
_QUANTISERS = ("QuantizeLinear", "DequantizeLinear")
_FP8_OPSET = 19


def parser_problems(model: Path) -> list[str]:
    """Find what TensorRT 10's parser would refuse in a graph. Weights are not read."""
    import onnx
    from onnx import shape_inference

    try:
        graph = onnx.load(model, load_external_data=False)
        inferred = shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    except Exception as error:  # protobuf's and onnx's errors share no base class but Exception
        raise ExportError(f"{model}: its types cannot be inferred: {error}") from None
    return list(dict.fromkeys(_problems(inferred, model.parent)))


def _problems(model: onnx.ModelProto, folder: Path) -> Iterator[str]:
    graph = model.graph
    [opset] = [item.version for item in model.opset_import if item.domain in ("", "ai.onnx")]
    if opset not in OPSETS:
        yield f"opset {opset}, beyond {OPSETS[0]} to {OPSETS[-1]}"
    yield from _of_graph(graph, {}, {}, {}, opset)


def _of_graph(
    graph: onnx.GraphProto,
    kinds: dict[str, int],
    ranks: dict[str, int],
    constants: dict[str, onnx.TensorProto],
    opset: int,
) -> Iterator[str]:
    """Find the problems of a graph, and of the graphs inside it, which see the values around them."""
    types = {value.name: value.type.tensor_type for value in [*graph.input, *graph.value_info, *graph.output]}
    constants = constants | {tensor.name: tensor for tensor in graph.initializer}
    kinds = kinds | {name: kind.elem_type for name, kind in types.items()}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    ranks = ranks | {name: len(kind.shape.dim) for name, kind in types.items() if kind.HasField("shape")}
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        kind = node.op_type
        if node.domain not in ("", "ai.onnx"):
            yield f"{node.domain}.{kind} is no standard operator"
            continue
        if kind in _WITH_GRAPHS:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from _of_graph(attribute.g, kinds, ranks, constants, opset)
            continue
        if kind not in OPERATORS:
            yield f"{kind} is not supported"
            continue
        deciding = _deciding(node)
        if kinds.get(deciding) not in OPERATORS[kind]:
            yield f"{kind} does not take {DataType(kinds.get(deciding, 0)).name}"
        yield from _restrictions(node, ranks, constants)
        if kind in _QUANTISERS:
            yield from _quantisation(node, kinds, constants, opset)


def _deciding(node: onnx.NodeProto) -> str:
    """Return the input (or the output) whose type decides whether an operator is taken."""
    if node.op_type in ("Constant", "ConstantOfShape"):
        return str(node.output[0])
    return str(node.input[1 if node.op_type == "Where" else 0])


def _restrictions(
    node: onnx.NodeProto, ranks: dict[str, int], constants: dict[str, onnx.TensorProto]
) -> Iterator[str]:
    kind = node.op_type
    inputs = [name for name in node.input if name]
    if kind == "Attention":
        if any(node.input[4:]):
            yield "Attention takes no past_key, past_value or nonpad_kv_seqlen"
        if any(ranks.get(name) != 4 for name in inputs[:4]):
            yield "Attention takes Q, K, V and a mask of 4 dimensions only"
        if len(node.output) > 1:
            yield "Attention has one output only"
        if any(item.name in ("softcap", "qk_matmul_output_mode") for item in node.attribute):
            yield "Attention knows neither softcap nor qk_matmul_output_mode"
    elif kind in ("LayerNormalization", "RMSNormalization") and len(node.output) > 1:
        yield f"{kind} has one output only"
    elif (
        (kind.startswith("Reduce") or kind in _CONSTANT_AXES)
        and len(inputs) > 1
        and inputs[1] not in constants
    ):
        yield f"{kind} takes constant axes only"


def _quantisation(
    node: onnx.NodeProto, kinds: dict[str, int], constants: dict[str, onnx.TensorProto], opset: int
) -> Iterator[str]:
    """Check types, scales and zero points of QuantizeLinear and DequantizeLinear."""
    from onnx import numpy_helper

    kind = node.op_type
    levels = DataType(kinds.get(node.output[0] if kind == "QuantizeLinear" else node.input[0], 0))
    if (
        kind == "QuantizeLinear" and levels not in _QUANTISED
    ):  # DequantizeLinear has the type of its first input
        yield f"{kind} does not give {levels.name}"
    if levels == DataType.FLOAT8E4M3FN and opset < _FP8_OPSET:
        yield f"{kind} has {levels.name} from opset {_FP8_OPSET} on"
    scale = constants.get(node.input[1])
    if scale is not None and not np.all(numpy_helper.to_array(scale).astype(np.float32) > 0):
        yield f"{kind} takes scales above 0 only"
    if len(node.input) > 2 and node.input[2]:
        zero = constants.get(node.input[2])
        if zero is None or np.any(numpy_helper.to_array(zero).astype(np.float32)):
            yield f"{kind} takes a zero point of 0 only"
