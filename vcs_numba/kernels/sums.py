"""Sums that round exactly as NumPy's do."""

from __future__ import annotations

import numpy as np

from vcs_numba.jit.kernel import helper, rare
from vcs_numba.kernels.matching import Floats


@helper
def _block_sum(values: Floats, line: int, first: int, count: int) -> float:
    """Sum up to 128 contiguous values as NumPy does.

    It keeps eight running sums, or one below eight values.
    """
    total = 0.0
    rest = first
    if count >= 8:
        a, b = values[line, first], values[line, first + 1]
        c, d = values[line, first + 2], values[line, first + 3]
        e, f = values[line, first + 4], values[line, first + 5]
        g, h = values[line, first + 6], values[line, first + 7]
        rest = first + count - count % 8
        for i in range(first + 8, rest, 8):
            a += values[line, i]
            b += values[line, i + 1]
            c += values[line, i + 2]
            d += values[line, i + 3]
            e += values[line, i + 4]
            f += values[line, i + 5]
            g += values[line, i + 6]
            h += values[line, i + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(rest, first + count):
        total += values[line, i]
    return total


@rare
def _halved_sum(values: Floats, line: int, count: int) -> float:
    """Sum more than 128 values as NumPy does, by halves down to blocks of 128.

    An explicit stack replaces the recursion, because Numba's cache cannot hold recursive functions.
    """
    spans = np.empty((64, 3), dtype=np.int64)  # first, count, halves summed
    left = np.empty(64, dtype=np.float64)
    spans[0, 0] = 0
    spans[0, 1] = count
    spans[0, 2] = 0
    depth = 0
    total = 0.0
    while depth >= 0:
        start = spans[depth, 0]
        size = spans[depth, 1]
        halves = spans[depth, 2]
        half = size // 2
        half -= half % 8
        if size <= 128:
            total = _block_sum(values, line, start, size)
            depth -= 1
        elif halves == 2:
            total += left[depth]
            depth -= 1
        else:
            if halves == 1:
                left[depth] = total
                start += half
                half = size - half
            spans[depth, 2] += 1
            depth += 1
            spans[depth, 0] = start
            spans[depth, 1] = half
            spans[depth, 2] = 0
    return total


@helper
def pairwise_sum(values: Floats, line: int, count: int) -> float:
    """Return `numpy.sum(values[line, :count])` of NumPy 2.3 and later, bit for bit.

    Earlier releases give the same up to 8192 values, and add more of them in blocks of 8192. The
    order of additions matters: with similarities of both signs LAS_P + LAS_R may cancel to a
    rounding error, and LAS divides by it.
    """
    return _block_sum(values, line, 0, count) if count <= 128 else _halved_sum(values, line, count)
