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


def encode(folder: Path, ids: list[int], skip_mask: int = 0) -> Array:
    """The unit vector `(hidden,)` of one text; the last `skip_mask` ids are masked."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = {name: t.astype(np.float64) for name, t in load_file(folder / "model.safetensors").items()}
    tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    kept = len(ids) - skip_mask
    x = (
        tensors["embeddings.word_embeddings.weight"][ids]
        + tensors["embeddings.position_embeddings.weight"][: len(ids)]
        + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    x = _norm(x, tensors, "embeddings.LayerNorm", config)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        heads = []
        size = config["hidden_size"] // config["num_attention_heads"]
        query, key, value = (
            _linear(x, tensors, f"{prefix}attention.self.{name}") for name in ("query", "key", "value")
        )
        for head in range(config["num_attention_heads"]):
            part = slice(head * size, (head + 1) * size)
            scores = query[:, part] @ key[:kept, part].T / math.sqrt(size)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(weights / weights.sum(axis=1, keepdims=True) @ value[:kept, part])
        out = _linear(np.concatenate(heads, axis=1), tensors, f"{prefix}attention.output.dense")
        x = _norm(x + out, tensors, f"{prefix}attention.output.LayerNorm", config)
        inner = _linear(x, tensors, f"{prefix}intermediate.dense")
        inner = inner * 0.5 * (1 + _erf(inner / math.sqrt(2)))
        x = _norm(
            x + _linear(inner, tensors, f"{prefix}output.dense"), tensors, f"{prefix}output.LayerNorm", config
        )
    mean = x[:kept].mean(axis=0)
    vector: Array = mean / np.linalg.norm(mean)
    return vector


def _linear(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def _norm(x: Array, tensors: Mapping[str, Array], name: str, config: Mapping[str, Any]) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + config["layer_norm_eps"])
    return centred / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]
