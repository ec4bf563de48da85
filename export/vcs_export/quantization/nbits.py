"""Quantisation of weights to 8 bits, with a scale for each block of a row.

Activations are not quantised. ONNX Runtime's MatMulNBits reads this layout, and a test multiplies
with it. A row of the weight, `(out, in)`, is cut into blocks along its inputs. Each number is
stored unsigned around 128.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

PRECISION = "int8"
BITS = 8
BLOCK = 128
"""Number of weights that share a scale."""


def packed_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the stored shape `(out, blocks, bytes of a block)` for a weight `(out, in)`."""
    return shape[0], -(-shape[1] // BLOCK), BLOCK


def quantise(
    blocks: Iterable[NDArray[Any]],
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float32]]]:
    """Quantise the rows of a weight.

    A number is `scale * (stored - 128)`. The scale has the sign of the block's number furthest from
    zero, so that all 256 levels are used, though zero is not in their middle. Scales are rounded to
    half precision, as a GPU takes them, so that a bundle's weights are the same on every device.
    """
    half = 1 << (BITS - 1)
    for block in blocks:
        rows = block.astype(np.float32, copy=False)
        missing = -rows.shape[1] % BLOCK
        if missing:
            rows = np.pad(rows, ((0, 0), (0, missing)))
        rows = rows.reshape(len(rows), -1, BLOCK)
        low, high = rows.min(axis=2, keepdims=True), rows.max(axis=2, keepdims=True)
        furthest = np.where(-low > high, low, high)
        scale = furthest / np.float32(-half)
        scale = scale.astype(np.float16).astype(np.float32)
        # A block of zeros has the scale 0; any divisor will do for it.
        steps = rows / np.where(scale == 0, np.float32(1), scale)
        np.rint(steps, out=steps)
        np.clip(steps, -half, half - 1, out=steps)
        yield (steps + half).astype(np.uint8), scale[:, :, 0]
