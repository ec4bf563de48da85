"""Quantisation of weights to 8 bits, with a scale for each block of a row.

Activations are not quantised. The layout is that of ONNX Runtime's MatMulNBits. A row of the
weight, `(out, in)`, is cut into blocks along its inputs. Each number is stored unsigned around 128.
A test multiplies with it in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

PRECISION = "int8"
BITS = 8
BLOCK = 128
"""How many numbers share a scale."""


def packed_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the stored shape `(out, blocks, bytes of a block)` for a weight `(out, in)`."""
    return shape[0], -(-shape[1] // BLOCK), BLOCK


def quantise(
    blocks: Iterable[NDArray[Any]],
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float32]]]:
    """Quantise the rows of a weight.

    A number is `scale * (stored - 128)`. The scale has the sign of the block's number furthest from
    zero, so that all 256 levels are used, though zero is not in their middle. Scales are rounded to
    half precision, in which a GPU takes them: a bundle's weights are the same on every device.
    """
    half = 1 << (BITS - 1)
    for block in blocks:
        rows = block.astype(np.float32, copy=False)
        if missing := -rows.shape[1] % BLOCK:
            rows = np.pad(rows, ((0, 0), (0, missing)))
        rows = rows.reshape(len(rows), -1, BLOCK)
        low, high = rows.min(axis=2, keepdims=True), rows.max(axis=2, keepdims=True)
        scale = np.where(-low > high, low, high) / np.float32(-half)
        scale = scale.astype(np.float16).astype(np.float32)
        # Any scale will do for a block of zeros.
        steps = rows / np.where(scale == 0, np.float32(1), scale)
        np.rint(steps, out=steps)
        np.clip(steps, -half, half - 1, out=steps)
        yield (steps + half).astype(np.uint8), scale[:, :, 0]
