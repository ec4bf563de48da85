"""Matrices in FP8 (E4M3): a scale a matrix, and a fixed scale for what it is multiplied with.

The graph says it in standard operators, QuantizeLinear and DequantizeLinear. TensorRT 10 joins them with the
product between them into one in FP8, by NVIDIA's own account only where both scales are single numbers
(https://github.com/NVIDIA/TensorRT-Model-Connect/pull/1386); on a CPU they run as they are, so that what is
lost can be measured there.

Scales are powers of two. A floating-point number keeps its relative precision whatever power of two it is
divided by: a finer scale, or one for each row, would be no more exact. A power of two is exact in half
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
"""The largest number of the type. Larger ones become it."""
# Above the largest input that calibration saw: one of the type's powers of two is for what it did not see.
_ROOM = 2.0
# The powers of two that half precision holds in full.
_EXPONENTS = (-14, 15)
_HALF = 2  # bytes of a number in half precision, fp16 or bf16

Ranges = Mapping[str, float]
"""The largest absolute number that is multiplied with each weight, by the weight's name."""


def input_scale(largest: float) -> float:
    """The scale of inputs of which `largest` was seen."""
    return scale(_ROOM * largest)


def scale(largest: float) -> float:
    """The least power of two, of those that half precision holds, with which `largest` does not overflow."""
    low, high = _EXPONENTS
    exponent = math.ceil(math.log2(largest / LARGEST)) if largest > 0 else low
    return 2.0 ** min(max(exponent, low), high)


def largest(blocks: Iterable[NDArray[Any]]) -> float:
    """The largest absolute number in blocks of rows."""
    return max(map(_largest, blocks))


def quantise(blocks: Iterable[NDArray[Any]], scale: float) -> Iterator[NDArray[Any]]:
    """Blocks of rows divided by `scale`, each number rounded to the nearest of the type."""
    for block in blocks:
        if block.dtype.itemsize == _HALF:
            yield _table(block.dtype, scale)[block.view(np.uint16)]
        else:
            yield _rounded(block, scale)


def _largest(block: NDArray[Any]) -> float:
    if block.dtype.itemsize != _HALF:
        return float(np.abs(block).max())
    # Without their signs, numbers in half precision are in the order of their bits.
    return float((block.view(np.uint16) & np.uint16(0x7FFF)).max().view(block.dtype))


def _rounded(numbers: NDArray[Any], scale: float) -> NDArray[Any]:
    return (numbers.astype(np.float32, copy=False) / np.float32(scale)).astype(TYPE.numpy())


@lru_cache(maxsize=64)
def _table(kind: np.dtype[Any], scale: float) -> NDArray[Any]:
    """What becomes of each number of a type of 16 bits: looking it up is several times as fast."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _rounded(np.arange(1 << 16, dtype=np.uint16).view(kind), scale)
