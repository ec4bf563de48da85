"""Outliers as real Mistrals have them, planted into a tiny random NV-Embed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHANNEL = 2
"""The channel of the sum that gets the outlier."""
_UNIT = 5
_SUM, _PRODUCT = 400.0, 1000.0
_START = 1  # the id of <s>


def plant(tensors: dict[str, NDArray[np.float32]], layer: int, tokens: str) -> None:
    """Make a unit of a layer give about +-1000, and so a channel of the sum about +-400 from the
    next layer on.

    tokens  "every", with signs that differ between words, or "<s>"
    """
    table = tensors["embedding_model.embed_tokens.weight"]
    # Two channels, one constant and one of changing sign, which the unit multiplies.
    rows = slice(None) if tokens == "every" else slice(_START, _START + 1)
    size = 2.0 * table.shape[1] ** 0.5
    table[:, :2] = 0
    table[rows, 0] = size
    table[rows, 1] = size * np.where(np.arange(len(table)) % 2, 1, -1)[rows]
    name = f"embedding_model.layers.{layer}."
    reached = np.abs(_normed(table[_START], tensors[f"{name}post_attention_layernorm.weight"])[:2])
    for matrix, channel in (("gate", 0), ("up", 1)):
        weight = tensors[f"{name}mlp.{matrix}_proj.weight"]
        weight *= 0.25  # the other outputs are .01 to .1
        weight[_UNIT] = 0
        weight[_UNIT, channel] = _PRODUCT**0.5 / reached[channel]
    down = tensors[f"{name}mlp.down_proj.weight"]
    down[:, _UNIT] = 0
    down[CHANNEL, _UNIT] = _SUM / _PRODUCT


def _normed(row: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    normed: NDArray[np.float32] = row / np.sqrt((row**2).mean()) * weight
    return normed
