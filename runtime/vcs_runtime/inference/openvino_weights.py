"""How OpenVINO reads the weights of large models: from their file, and no more than once into memory.

By itself it copies the weights of MatMulNBits while it reads a graph, and widens weights in half precision to
float32. NV-Embed would take 40 GB. The conversions here give it the same products in a form of which it keeps
one copy: the one that is arranged for the processor. The weights in the file stay there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from vcs_runtime.util.extras import require

_HALVES = ("f16", "bf16")
# OpenVINO's mark of a conversion whose input stays as it is stored (`is_decompression`).
_STORED = "decompression_0"


def conversions() -> list[Any]:
    """Return extensions for OpenVINO's reader of ONNX; raises MissingExtraError.

    The reader fails on a graph that has other forms of these operators than vcs-runtime writes.
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
    """Convert `x W^T` with 4 or 8 bits a weight and a scale for each block of a row."""
    op = _operators()
    bits, block, rows, columns = (node.get_attribute(name) for name in ("bits", "block_size", "N", "K"))
    if node.get_input_size() != 3 or bits not in (4, 8):
        raise ValueError("MatMulNBits has another form than vcs-runtime writes")
    x, levels, scales = (node.get_input(i) for i in range(3))
    if bits == 4:
        levels = _four_bits(levels, rows, block)
    numbers = op.subtract(op.convert(levels, "f32"), op.constant(np.float32(1 << (bits - 1))))
    scales = op.reshape(scales, op.constant(np.array([rows, -1, 1])), False)
    weight = op.reshape(op.multiply(numbers, scales), op.constant(np.array([rows, -1])), False)
    if columns % block:  # the last block of a row is filled up
        start, stop, step, axis = (op.constant(np.array([number])) for number in (0, columns, 1, 1))
        weight = op.slice(weight, start, stop, step, axis)
    return op.matmul(x, weight, False, True).outputs()


def _four_bits(levels: Any, rows: int, block: int) -> Any:
    """Return the same bytes as numbers of 4 bits, `(rows, blocks, block)`."""
    openvino = import_module("openvino")
    stored = levels.get_node().data
    shape = [rows, stored.size * 2 // (rows * block), block]
    return openvino.op.Constant(openvino.Tensor(stored, shape, openvino.Type.u4), True).output(0)


def _product(node: Any) -> Any:
    """Convert `x W^T + b`."""
    op = _operators()
    form = {name: node.get_attribute(name, default) for name, default in _GEMM.items()}
    if form != _GEMM | {"transB": 1}:
        raise ValueError("Gemm has another form than vcs-runtime writes")
    x, weight, *bias = (node.get_input(i) for i in range(node.get_input_size()))
    if (kind := _half(weight)) is None:
        product = op.matmul(x, weight, False, True)
        return (op.add(product, *bias) if bias else product).outputs()
    product = op.matmul(op.convert(x, "f32"), _stored(weight), False, True)
    if bias:
        product = op.add(product, op.convert(bias[0], "f32"))
    return op.convert(product, kind).outputs()


_GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}


def _rows(node: Any) -> Any:
    """Convert a look-up of rows of a table."""
    op = _operators()
    table, indices = node.get_input(0), node.get_input(1)
    axis = op.constant(np.int64(node.get_attribute("axis", 0)))
    if (kind := _half(table)) is None:
        return op.gather(table, indices, axis).outputs()
    return op.convert(op.gather(_stored(table), indices, axis), kind).outputs()


def _half(value: Any) -> str | None:
    """Return the type of weights in half precision; None for other values."""
    kind: str = value.get_element_type().to_string()
    return kind if kind in _HALVES and value.get_node().get_type_name() == "Constant" else None


def _stored(weight: Any) -> Any:
    """Return weights in half precision as float32 without storing them in it."""
    op = _operators()
    widened = op.convert(weight, "f32")
    widened.get_rt_info()[_STORED] = ""
    return widened
