"""BERT's forward pass in plain NumPy, float64, one text at a time: what a graph must compute."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float64]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def encode(folder: Path, ids: list[int]) -> Array:
    """The unit vector `(hidden,)` of one text."""
    config, tensors = load(folder, "bert.")
    visible = np.ones((len(ids), len(ids)), bool)
    mean = transform(tensors, config, ids, list(range(len(ids))), visible).mean(axis=0)
    vector: Array = mean / np.linalg.norm(mean)
    return vector


def load(folder: Path, prefix: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The settings of a checkpoint and its tensors, without the prefix of their names."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = load_file(folder / "model.safetensors")
    return config, {name.removeprefix(prefix): t.astype(np.float64) for name, t in tensors.items()}


def transform(
    tensors: Mapping[str, Array],
    config: Mapping[str, Any],
    ids: list[int],
    positions: list[int],
    visible: NDArray[np.bool_],
    added: Array | float = 0.0,
) -> Array:
    """The last hidden states; `visible[i, j]`: token i sees key j; `added` onto the embeddings."""
    x = (
        tensors["embeddings.word_embeddings.weight"][ids]
        + tensors["embeddings.position_embeddings.weight"][positions]
        + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    x = norm(x, tensors, "embeddings.LayerNorm", config) + added
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        heads = []
        size = config["hidden_size"] // config["num_attention_heads"]
        query, key, value = (
            linear(x, tensors, f"{prefix}attention.self.{name}")
            for name in ("query", "key", "value")
        )
        for head in range(config["num_attention_heads"]):
            part = slice(head * size, (head + 1) * size)
            scores = np.where(visible, query[:, part] @ key[:, part].T / math.sqrt(size), -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(weights / weights.sum(axis=1, keepdims=True) @ value[:, part])
        out = linear(np.concatenate(heads, axis=1), tensors, f"{prefix}attention.output.dense")
        x = norm(x + out, tensors, f"{prefix}attention.output.LayerNorm", config)
        inner = gelu(linear(x, tensors, f"{prefix}intermediate.dense"))
        x += linear(inner, tensors, f"{prefix}output.dense")
        x = norm(x, tensors, f"{prefix}output.LayerNorm", config)
    return x


def linear(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    """The linear layer `name` over the rows of x."""
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def norm(x: Array, tensors: Mapping[str, Array], name: str, config: Mapping[str, Any]) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + config["layer_norm_eps"])
    return centred / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]
