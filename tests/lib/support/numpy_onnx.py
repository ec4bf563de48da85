"""Decoders' graphs in NumPy, node by node: the only way to compute, without a GPU, what a CUDA
graph says.

`run` computes in two ways. `exact=True` takes every number for a float64, so that two graphs that
compute the same function give the same numbers. `exact=False` rounds where the kernels of ONNX
Runtime 1.31.1 round; where that is not the type of an operator's output, its function says so (read
from the machine code of the kernels for sm90).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]
_FLOATS = {1: np.float32, 10: np.float16, 11: np.float64, 16: ml_dtypes.bfloat16}
_erf = np.vectorize(math.erf, otypes=[np.float64])


def run(model: Path, inputs: Mapping[str, Array], *, exact: bool = False) -> Array:
    """Compute the first output of a graph, float32 or float64."""
    graph = onnx.load(model, load_external_data=False).graph
    operators = Operators(exact)
    tensors = {tensor.name: tensor for tensor in graph.initializer}

    def stored(name: str) -> Array:
        return operators.rounded(_stored(tensors[name], model.parent))

    return _output(graph, inputs, stored, operators)


def _output(
    graph: onnx.GraphProto,
    given: Mapping[str, Array],
    stored: Callable[[str], Array],
    operators: Operators,
) -> Array:
    """The first output of a graph, or of a node's graph, which may read outer values."""
    values = dict(given)
    last = {name: number for number, node in enumerate(graph.node) for name in _read(node)}
    for number, node in enumerate(graph.node):
        arguments = []
        for name in node.input:
            if name and name not in values:
                values[name] = stored(name)
            arguments.append(values[name] if name else None)
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "If":
            branch = attributes["then_branch" if arguments[0] else "else_branch"]
            values[node.output[0]] = _output(branch, values, stored, operators)
        else:
            values[node.output[0]] = operators.of(node.op_type)(*arguments, **attributes)
        # A graph at full width would not fit into memory with all its values.
        for name in _read(node):
            if last[name] == number:
                values.pop(name, None)
    return values[graph.output[0].name]


def _read(node: onnx.NodeProto) -> set[str]:
    """The values that a node reads, those of its inner graphs included."""
    inner = (_read(one) for item in node.attribute for one in item.g.node)
    return set(node.input).union(*inner)


def _stored(tensor: onnx.TensorProto, folder: Path) -> Array:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return numpy_helper.to_array(tensor)
    place = {item.key: item.value for item in tensor.external_data}
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    shape = tuple(tensor.dims)
    count = math.prod(shape)
    return np.fromfile(
        folder / place["location"], kind, count, offset=int(place["offset"])
    ).reshape(shape)


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16


class Operators:
    """The operators of decoders' graphs; a result has the type of the first input."""

    def __init__(self, exact: bool) -> None:
        self._exact = exact

    def rounded(self, x: Array, kind: Any = None) -> Array:
        """x in a type, its own by default; float64 where nothing is rounded."""
        if not _is_float(x):
            return x
        return x.astype(np.float64 if self._exact else kind or x.dtype, copy=False)

    def _wide(self, x: Array) -> Array:
        """x as kernels compute with it."""
        return (
            x.astype(np.float64 if self._exact else np.float32, copy=False) if _is_float(x) else x
        )

    def _each(self, function: Callable[..., Array], *inputs: Array) -> Array:
        return self.rounded(function(*map(self._wide, inputs)), inputs[0].dtype)

    def of(self, kind: str) -> Callable[..., Array]:
        """Return the operator of this name."""
        if kind in _PLAIN:
            return _PLAIN[kind]
        return partial(self._each, _SINGLE[kind]) if kind in _SINGLE else getattr(self, kind)

    # Shapes and indices

    def Shape(self, x: Array, start: int = 0, end: int | None = None) -> Array:
        return np.array(x.shape[start:end], np.int64)

    def Reshape(self, x: Array, shape: Array) -> Array:
        return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])

    def Transpose(self, x: Array, perm: list[int]) -> Array:
        return x.transpose(perm)

    def Squeeze(self, x: Array, axes: Array | None = None) -> Array:
        return x.squeeze(None if axes is None else tuple(axes))

    def Unsqueeze(self, x: Array, axes: Array) -> Array:
        return np.expand_dims(x, tuple(axes))

    def Expand(self, x: Array, shape: Array) -> Array:
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape)))

    def Gather(self, x: Array, rows: Array) -> Array:
        return x[rows]

    def Concat(self, *parts: Array, axis: int) -> Array:
        return np.concatenate(parts, axis)

    def CumSum(self, x: Array, axis: Array, exclusive: int = 0) -> Array:
        return x.cumsum(int(axis)) - exclusive * x

    def Slice(self, x: Array, start: Array, stop: Array, axis: Array) -> Array:
        [first], [end], [along] = start, stop, axis
        return x.take(range(x.shape[along])[first:end], along)

    def Cast(self, x: Array, to: int) -> Array:
        if to in _FLOATS:
            return x.astype(np.float64 if self._exact else _FLOATS[to])
        return x.astype(onnx.helper.tensor_dtype_to_np_dtype(to))

    # Arithmetic of single numbers

    def Gelu(self, x: Array, approximate: bytes = b"none") -> Array:
        if approximate == b"tanh":
            return self._each(
                lambda a: a * (0.5 + 0.5 * np.tanh(0.7978845608 * (a + 0.044715 * a**3))), x
            )
        return self._each(lambda a: a * (0.5 + 0.5 * _erf(a / math.sqrt(2))).astype(a.dtype), x)

    def BiasGelu(self, x: Array, bias: Array) -> Array:
        return self.rounded(self.Gelu(self._wide(x) + self._wide(bias)), x.dtype)

    # Rows

    def ReduceSum(self, x: Array, axes: Array, keepdims: int) -> Array:
        return self._each(lambda a: a.sum(axis=tuple(axes), keepdims=bool(keepdims)), x)

    def ReduceMean(self, x: Array, axes: Array, keepdims: int) -> Array:
        return self._each(lambda a: a.mean(axis=tuple(axes), keepdims=bool(keepdims)), x)

    def Softmax(self, x: Array, axis: int) -> Array:
        assert axis == -1
        return self._each(_softmax, x)

    def LayerNormalization(
        self, x: Array, scale: Array, shift: Array, axis: int, epsilon: float
    ) -> Array:
        def norm(x: Array, scale: Array, shift: Array) -> Array:
            centred = x - x.mean(axis=-1, keepdims=True)
            return (
                centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon) * scale
                + shift
            )

        return self._each(norm, x, scale, shift)

    def SkipLayerNormalization(
        self, x: Array, skip: Array, scale: Array, shift: Array, bias: Array, epsilon: float
    ) -> Array:
        """Everything is float32, and rounded once."""
        first, second, third, *rest = map(self._wide, (x, skip, bias, scale, shift))
        return self.rounded(
            self.LayerNormalization(first + second + third, *rest, -1, epsilon), x.dtype
        )

    def RMSNormalization(self, x: Array, scale: Array, axis: int, epsilon: float) -> Array:
        """The result has the type of the scale, to which it is rounded once."""
        wide = self._wide(x)
        root = np.sqrt((wide**2).mean(axis=-1, keepdims=True) + epsilon)
        return self.rounded(wide / root * self._wide(scale), scale.dtype)

    def GatedRMSNorm(
        self, x: Array, scale: Array, gate: Array, activation: bytes, epsilon: float
    ) -> Array:
        """Everything is float32, and rounded once."""
        assert activation == b"silu"

        def norm(x: Array, scale: Array, gate: Array) -> Array:
            root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + x.dtype.type(epsilon))
            return x / root * scale * (gate * _sigmoid(gate))

        return self._each(norm, x, scale, gate)

    # Matrices: halves are multiplied and added in float32

    def Gemm(self, x: Array, y: Array, bias: Array | None = None, transB: int = 0) -> Array:
        product = self._wide(x) @ self._wide(y.T if transB else y)
        return self.rounded(product if bias is None else product + self._wide(bias), x.dtype)

    def MatMulNBits(
        self,
        x: Array,
        levels: Array,
        scales: Array,
        N: int,
        K: int,
        bits: int,
        block_size: int,
        **_: Any,
    ) -> Array:
        """Weights are widened to the type of x, in which level and scale are multiplied."""
        assert bits == 8
        steps = levels.astype(scales.dtype) - scales.dtype.type(1 << (bits - 1))
        weight = self.rounded(steps * scales[:, :, None], scales.dtype).reshape(N, -1)[:, :K]
        return self.Gemm(x, weight, transB=1)

    # Attention

    def RotaryEmbedding(
        self, x: Array, cosines: Array, sines: Array, positions: Array, num_heads: int
    ) -> Array:
        """The kernel computes in the type of x: two products of halves, and a sum rounded once."""
        split = x.reshape(*x.shape[:2], num_heads, -1)
        left, right = np.split(split, 2, axis=-1)
        cosine, sine = (self._wide(table[positions][:, :, None]) for table in (cosines, sines))
        parts = []
        for part, other in ((left, -right), (right, left)):
            turned = self.rounded(self._wide(other) * sine, x.dtype)
            parts.append(self.rounded(self._wide(part) * cosine + self._wide(turned), x.dtype))
        return np.concatenate(parts, axis=-1).reshape(x.shape)

    def Attention(
        self,
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        *rest: Array | None,
        is_causal: int,
        q_num_heads: int = 0,
        kv_num_heads: int = 0,
        scale: float | None = None,
    ) -> Array:
        """Padded texts; with lengths, a causal mask would be aligned at the last token of each."""
        lengths = rest[-1] if rest else np.full(len(query), query.shape[-2])
        assert lengths is not None
        assert not (is_causal and rest)
        masks = (
            None if bias is None else np.broadcast_to(bias, (len(query), 1, *bias.shape[-2:]))[:, 0]
        )
        if query.ndim == 4:
            q_num_heads, kv_num_heads = query.shape[1], key.shape[1]
            rows = (x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1) for x in (query, key, value))
            query, key, value = rows
        out = np.zeros_like(query)
        for text, length in enumerate(lengths):
            part = (x[text, :length] for x in (query, key, value))
            seen = np.tri(length, dtype=bool) if is_causal else np.ones((length, length), bool)
            if masks is not None:
                mask = masks[text, :length, :length]
                seen &= mask if mask.dtype == bool else mask == 0
            out[text, :length] = self._attend(*part, q_num_heads, kv_num_heads, scale, seen)
        if masks is not None and masks.dtype == bool:
            return out.reshape(*out.shape[:2], q_num_heads, -1).swapaxes(1, 2)
        return out

    def PackedMultiHeadAttention(
        self,
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None,
        places: Array,
        starts: Array,
        num_heads: int,
        scale: float | None = None,
    ) -> Array:
        """Texts one after the other; `places` must be as the operator's documentation says."""
        assert bias is None
        assert query.dtype in (np.float16, np.float64)
        assert starts.dtype == places.dtype == np.int32
        lengths = np.diff(starts)
        filled = np.arange(places.shape[1]) < lengths[:, None]
        assert places.shape[1] == lengths.max()
        assert starts[-1] == len(query)
        assert np.array_equal(places.ravel(), [*np.flatnonzero(filled), *np.flatnonzero(~filled)])
        out = np.empty_like(query)
        for start, stop in itertools.pairwise(starts):
            part = (x[start:stop] for x in (query, key, value))
            out[start:stop] = self._attend(*part, num_heads, num_heads, scale)
        return out

    def _attend(
        self,
        query: Array,
        key: Array,
        value: Array,
        heads: int,
        groups: int,
        scale: float | None,
        seen: Array | None = None,
    ) -> Array:
        """Flash attention: scores are float32, weights are rounded before the product and divided
        by their sum after.

        `seen` are the keys that each query may see: at least one, as there are kernels for which
        none is NaN.
        """
        rows, kind = len(query), query.dtype
        q, k, v = (
            self._wide(x).reshape(rows, n, -1).swapaxes(0, 1)
            for x, n in ((query, heads), (key, groups), (value, groups))
        )
        k, v = (np.repeat(x, heads // groups, axis=0) for x in (k, v))
        scores = q @ k.swapaxes(1, 2) * (scale or 1 / math.sqrt(q.shape[-1]))
        if seen is not None:
            assert seen.any(axis=-1).all()
            scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out = self._wide(self.rounded(weights, kind)) @ v / weights.sum(axis=-1, keepdims=True)
        return self.rounded(out.swapaxes(0, 1).reshape(rows, -1), kind)


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        result: Array = 1 / (1 + np.exp(-x))
    return result


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Array = weights / weights.sum(axis=-1, keepdims=True)
    return result


# Operators that are functions of NumPy, on indices, conditions or the wide type.
_PLAIN: Mapping[str, Callable[..., Array]] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "Mod": np.mod,
    "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Not": np.logical_not,
    "Where": np.where,
    "Range": np.arange,
}
_SINGLE: Mapping[str, Callable[..., Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Abs": np.abs,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Sqrt": np.sqrt,
    "Sigmoid": _sigmoid,
    "MatMul": np.matmul,  # halves are multiplied and added in float32
}


def names(model: Path) -> Sequence[str]:
    """The operators of a graph, in their order."""
    return [node.op_type for node in onnx.load(model, load_external_data=False).graph.node]
