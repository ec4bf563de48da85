"""A random ModernBERT of a few kilobytes, and its forward pass in NumPy, float64."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from support.checkpoints.bert import VOCABULARY
from support.checkpoints.files import write_json
from support.tiny_sentence import write_sentence_files

Array = NDArray[np.float64]
HIDDEN, LAYERS, HEADS, INNER = 32, 5, 4, 48
POSITIONS = 64
WINDOW = 10
"""`local_attention`: a token sees five on each side."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def write_tiny_modernbert(folder: Path, prefix: str = "", seed: int = 0, **config: Any) -> Path:
    """Write a tiny sentence-transformers folder, pooled by its first token, with this config."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float, centre: float = 0.0) -> NDArray[np.float32]:
        return (centre + scale * rng.standard_normal(shape)).astype(np.float32)

    def matrix(out: int, inputs: int) -> NDArray[np.float32]:
        return normal(out, inputs, scale=1.5 / math.sqrt(inputs))

    tensors = {
        "embeddings.tok_embeddings.weight": normal(len(VOCABULARY), HIDDEN, scale=1.0),
        "embeddings.norm.weight": normal(HIDDEN, scale=0.2, centre=1.0),
        "final_norm.weight": normal(HIDDEN, scale=0.2, centre=1.0),
    }
    for layer in range(LAYERS):
        name = f"layers.{layer}."
        tensors |= {
            f"{name}attn.Wqkv.weight": matrix(3 * HIDDEN, HIDDEN),
            f"{name}attn.Wo.weight": matrix(HIDDEN, HIDDEN),
            f"{name}mlp_norm.weight": normal(HIDDEN, scale=0.2, centre=1.0),
            f"{name}mlp.Wi.weight": matrix(2 * INNER, HIDDEN),
            f"{name}mlp.Wo.weight": matrix(HIDDEN, INNER),
        }
        if layer:
            tensors[f"{name}attn_norm.weight"] = normal(HIDDEN, scale=0.2, centre=1.0)
    save_file(
        {prefix + name: tensor for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    settings = {
        "model_type": "modernbert",
        "hidden_activation": "gelu",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "vocab_size": len(VOCABULARY),
        "max_position_embeddings": POSITIONS,
        "norm_eps": 1e-5,
        # In published files, and not used.
        "layer_norm_eps": 1e-3,
        "position_embedding_type": "absolute",
        "global_attn_every_n_layers": 3,
        "local_attention": WINDOW,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 100.0,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
    }
    data = {key: v for key, v in {**settings, **config}.items() if v is not None}
    write_json(folder / "config.json", data)
    write_sentence_files(folder, HIDDEN, POSITIONS, "pooling_mode_cls_token", ())
    return folder


def hidden_states(folder: Path, ids: list[int]) -> Array:
    """The last hidden states `(tokens, hidden)` of one text."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    weights = {
        name: t.astype(np.float64) for name, t in load_file(folder / "model.safetensors").items()
    }
    places = np.arange(len(ids))
    near = np.abs(places[:, None] - places) <= config["local_attention"] // 2
    x = _norm(weights["embeddings.tok_embeddings.weight"][ids], weights, "embeddings.norm")
    for layer in range(config["num_hidden_layers"]):
        name = f"layers.{layer}."
        local = layer % config["global_attn_every_n_layers"] != 0
        theta = config["local_rope_theta" if local else "global_rope_theta"]
        normed = _norm(x, weights, f"{name}attn_norm") if layer else x
        x = x + _attention(normed, weights, name, theta, near if local else np.ones_like(near))
        both = _norm(x, weights, f"{name}mlp_norm") @ weights[f"{name}mlp.Wi.weight"].T
        inner, gate = both[:, :INNER], both[:, INNER:]
        inner = inner * 0.5 * (1 + _erf(inner / math.sqrt(2)))
        x = x + (inner * gate) @ weights[f"{name}mlp.Wo.weight"].T
    return _norm(x, weights, "final_norm")


def encode(folder: Path, ids: list[int]) -> Array:
    """The unit vector `(hidden,)` of one text: its first token's."""
    vector: Array = hidden_states(folder, ids)[0]
    return vector / np.linalg.norm(vector)


def _attention(
    x: Array, weights: Mapping[str, Array], name: str, theta: float, visible: NDArray[np.bool_]
) -> Array:
    size = HIDDEN // HEADS
    stacked = (x @ weights[f"{name}attn.Wqkv.weight"].T).reshape(len(x), 3, HEADS, size)
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(0, size, 2) / size)
    turns = np.exp(1j * angles)  # a pair of numbers is one complex number
    heads = []
    for head in range(HEADS):
        query, key = (
            (stacked[:, part, head, : size // 2] + 1j * stacked[:, part, head, size // 2 :]) * turns
            for part in (0, 1)
        )
        scores = np.where(visible, (query @ key.conj().T).real / math.sqrt(size), -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        heads.append(shares / shares.sum(axis=1, keepdims=True) @ stacked[:, 2, head])
    return np.concatenate(heads, axis=1) @ weights[f"{name}attn.Wo.weight"].T


def _norm(x: Array, weights: Mapping[str, Array], name: str) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    scaled: Array = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return scaled * weights[f"{name}.weight"]
