"""Quantisation of matrices to fp8 (E4M3), with one scale a matrix and a fixed scale for its inputs.

The graph uses the standard operators QuantizeLinear and DequantizeLinear. TensorRT 10 joins them and the
product between them into one product in fp8; NVIDIA says that it does so only where both scales are single
numbers (https://github.com/NVIDIA/TensorRT-Model-Connect/pull/1386). On a CPU the operators run as they are,
so that the quantisation error can be measured there.

Scales are powers of two. A floating-point number keeps its relative precision whatever power of two it is
divided by, so a finer scale, or one for each row, would be no more exact. A power of two is exact in half
precision, and the same on machines whose last bits differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

PRECISION = "fp8"
TYPE = ir.DataType.FLOAT8E4M3FN
LARGEST = 448.0
"""The largest number of the type. Larger numbers are clipped to it."""
# Factor above the largest input of the calibration, so that larger inputs fit too.
_ROOM = 2.0
# Exponents of the powers of two that half precision represents exactly.
_EXPONENTS = (-14, 15)
_HALF = 2  # bytes of a number in half precision, fp16 or bf16

Ranges = Mapping[str, float]
"""The largest absolute input of each weight, by the weight's name."""


def input_scale(largest: float) -> float:
    """Return the scale of inputs whose largest absolute number was `largest`."""
    return scale(_ROOM * largest)


def scale(largest: float) -> float:
    """Return the smallest power of two, exact in half precision, with which `largest` does not overflow."""
    low, high = _EXPONENTS
    exponent = math.ceil(math.log2(largest / LARGEST)) if largest > 0 else low
    return 2.0 ** min(max(exponent, low), high)


def largest(blocks: Iterable[NDArray[Any]]) -> float:
    """Return the largest absolute number in blocks of rows."""
    return max(map(_largest, blocks))


def quantise(blocks: Iterable[NDArray[Any]], scale: float) -> Iterator[NDArray[Any]]:
    """Divide blocks of rows by `scale`, and round each number to the nearest one of the type."""
    for block in blocks:
        if block.dtype.itemsize == _HALF:
            yield _table(block.dtype, scale)[block.view(np.uint16)]
        else:
            yield _rounded(block, scale)


def _largest(block: NDArray[Any]) -> float:
    if block.dtype.itemsize != _HALF:
        return float(np.abs(block).max())
    # Without their signs, numbers in half precision have the order of their bits.
    return float((block.view(np.uint16) & np.uint16(0x7FFF)).max().view(block.dtype))


def _rounded(numbers: NDArray[Any], scale: float) -> NDArray[Any]:
    return (numbers.astype(np.float32, copy=False) / np.float32(scale)).astype(TYPE.numpy())


@lru_cache(maxsize=64)
def _table(kind: np.dtype[Any], scale: float) -> NDArray[Any]:
    """Return the rounded value of each number of a 16-bit type. Looking it up is several times as fast."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _rounded(np.arange(1 << 16, dtype=np.uint16).view(kind), scale)
