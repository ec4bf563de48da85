"""What TensorRT's parser takes, by a graph alone: an oracle for the graphs that are exported here.

The facts are those of onnx-tensorrt's operator list for TensorRT 10.15 (docs/operators.md of
https://github.com/onnx/onnx-tensorrt, Apache-2.0): operators, the types they take, and
restrictions. The list proves nothing about TensorRT itself, which asks its own parser when an
engine is built. Quantised graphs are not listed: no engine is built of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from onnx import shape_inference
from onnx_ir import DataType

OPSETS = range(9, 25)
_FLOATS = {DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16}
_NUMBERS = _FLOATS | {DataType.INT32, DataType.INT64}
_ANY = _NUMBERS | {DataType.BOOL}
# Types of the first input, by operator, without those on images and sequences.
_TYPES = {
    "Acos Asin Atan Ceil Clip Cos Cosh CumSum Elu Erf Exp Floor Gemm HardSigmoid HardSwish LayerNormalization LeakyRelu Log LogSoftmax LpNormalization MatMul Reciprocal Round Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh": (
        _FLOATS
    ),
    "Abs Add ArgMax ArgMin Div Equal Gelu Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Neg Pad Pow Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu ScatterElements ScatterND Sign Sub Sum TopK": (
        _NUMBERS
    ),
    "And Not Or Xor": {DataType.BOOL},
    "Cast CastLike Concat Constant ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity OneHot Reshape Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze Where": (
        _ANY
    ),
}
_OPERATORS = {name: types for names, types in _TYPES.items() for name in names.split()}


def parser_problems(model: Path) -> list[str]:
    """Return what the parser would refuse in a graph, without its weights."""
    loaded = onnx.load(model, load_external_data=False)
    inferred = shape_inference.infer_shapes(loaded, strict_mode=True, data_prop=True)
    [opset] = [item.version for item in inferred.opset_import if item.domain in ("", "ai.onnx")]
    beyond = [] if opset in OPSETS else [f"opset {opset}, beyond {OPSETS[0]} to {OPSETS[-1]}"]
    return list(dict.fromkeys([*beyond, *_problems(inferred.graph, {}, frozenset())]))


def _problems(
    graph: onnx.GraphProto, kinds: Mapping[str, int], constants: frozenset[str]
) -> Iterator[str]:
    """Look at a graph, and at the graphs inside it, which see the values around them."""
    types = {
        value.name: value.type.tensor_type
        for value in [*graph.input, *graph.value_info, *graph.output]
    }
    constants |= {tensor.name for tensor in graph.initializer}
    kinds = {**kinds, **{name: kind.elem_type for name, kind in types.items()}}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        kind = node.op_type
        if node.domain not in ("", "ai.onnx"):
            yield f"{node.domain}.{kind} is no standard operator"
        elif kind in ("If", "Loop"):
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from _problems(attribute.g, kinds, constants)
        elif kind not in _OPERATORS:
            yield f"{kind} is not supported"
        else:
            if kinds.get(_deciding(node)) not in _OPERATORS[kind]:
                yield f"{kind} does not take {DataType(kinds.get(_deciding(node), 0)).name}"
            yield from _restrictions(node, constants)


def _deciding(node: onnx.NodeProto) -> str:
    """Return the input (or the output) whose type decides whether an operator is taken."""
    if node.op_type in ("Constant", "ConstantOfShape"):
        return str(node.output[0])
    return str(node.input[1 if node.op_type == "Where" else 0])


def _restrictions(node: onnx.NodeProto, constants: frozenset[str]) -> Iterator[str]:
    kind = node.op_type
    inputs = [name for name in node.input if name]
    if kind == "LayerNormalization" and len(node.output) > 1:
        yield f"{kind} has one output only"
    has_axes = kind.startswith("Reduce") or kind in ("Squeeze", "Unsqueeze")
    if has_axes and len(inputs) > 1 and inputs[1] not in constants:
        yield f"{kind} takes constant axes only"
