"""Quantisation of matrices to fp8 (E4M3), with one scale a matrix and a fixed scale for its inputs.

On CUDA the product is ONNX Runtime's GemmFloat8, which takes one scale for each of its two inputs. On a CPU
the standard operators QuantizeLinear and DequantizeLinear round the same numbers to the same bytes, so that
the quantisation error can be measured on any machine.

Scales are powers of two. A floating-point number keeps its relative precision whatever power of two it is
divided by, so a finer scale, or one for each row, would be no more exact. A power of two is exact in half
precision, and the same on machines whose last bits differ.

This holds as long as the usual numbers stay above the type's smallest normal number. Where a few inputs of a
matrix are thousands of times as large as the others, that is no longer so, and the matrix stays in half
precision (`Range.fits`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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

# Largest over mean, up to which rounding loses as little as it does without outliers: 2.7 % of the inputs'
# size. At twice this ratio it may lose 2.8 %, at 4 times 3.6 %, at 8 times 6.6 % (`fp8_error` at 07564bf).
_MOST_OUTLYING = 2048.0


@dataclass(frozen=True)
class Range:
    """The absolute inputs of a matrix in the calibration."""

    largest: float
    mean: float

    @property
    def fits(self) -> bool:
        """Whether the matrix can be multiplied in fp8: its usual inputs keep their precision."""
        return self.largest <= _MOST_OUTLYING * self.mean

    @property
    def scale(self) -> float:
        """The fixed scale of the inputs."""
        return scale(_ROOM * self.largest)


Ranges = Mapping[str, Range]
"""The inputs' range of each weight, by the weight's name."""


class Scales:
    """The scales of matrices and of their inputs. Each matrix is read once, however many graphs use it."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._matrices: dict[str, float] = {}

    def fits(self, weight: str) -> bool:
        """Whether a matrix, given by its name, can be multiplied in fp8 (`Range.fits`)."""
        return self._ranges[weight].fits

    def of_inputs(self, weight: str) -> float:
        """Return the scale of a matrix's inputs."""
        return self._ranges[weight].scale

    def of_matrix(self, weight: str, blocks: Iterable[NDArray[Any]]) -> float:
        """Return the scale of a matrix. Its blocks of rows are read if it is asked for the first time."""
        if weight not in self._matrices:
            self._matrices[weight] = scale(largest(blocks))
        return self._matrices[weight]


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
