"""SaT's forward pass in plain NumPy, float64, one window at a time: what a graph must compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.numpy_bert import Array, linear, load, transform

PAD = 1


def boundary_logits(folder: Path, ids: list[int], masked: int = 0) -> Array:
    """The logits of label 0, `(tokens,)`, for one window; the last `masked` ids are masked."""
    config, tensors = load(folder, "roberta.")
    positions, last = [], PAD
    for token in ids:
        last += token != PAD
        positions.append(PAD if token == PAD else last)
    row, column = np.indices((len(ids), len(ids)))
    visible = column < len(ids) - masked
    if config["lookahead"] is not None:
        visible &= column <= row + config["lookahead"] // config["num_hidden_layers"]
    states = transform(tensors, config, ids, positions, visible)
    return linear(states, tensors, "classifier")[:, 0]
