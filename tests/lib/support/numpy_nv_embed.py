"""NV-Embed's forward pass in NumPy, float64, one text at a time, as published."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from support.numpy_decoder import Settings, decode, parts, softmax
from support.safetensors_files import Array, StoredTensors

_erf = np.vectorize(math.erf, otypes=[np.float64])


def embed(folder: Path, ids: list[int], skip: int = 0, *, causal: bool = False) -> Array:
    """The unit vector `(hidden,)` of one text, whose first `skip` tokens are not pooled.

    causal: what the model is not; for tests that show that it would be noticed
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = StoredTensors(folder)
    hidden = decode(tensors, "embedding_model.", _settings(config["text_config"], causal), ids)
    z = _latents(tensors, config.get("latent_attention_config") or {}, hidden)
    mean = z[skip:].mean(axis=0)
    vector: Array = mean / np.linalg.norm(mean)
    return vector


def _settings(config: Mapping[str, Any], causal: bool) -> Settings:
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    return Settings(
        heads=heads,
        groups=config["num_key_value_heads"],
        head_size=size,
        epsilon=config["rms_norm_eps"],
        causal=causal,
        windows=(math.inf,) * layers,
        frequencies=(config["rope_theta"] ** -(np.arange(0, size, 2) / size),) * layers,
        attention_scale=size**-0.5,
    )


def _latents(tensors: Mapping[str, Array], config: Mapping[str, Any], hidden: Array) -> Array:
    cross, gated = (f"latent_attention_model.cross_attend_blocks.{i}." for i in (0, 1))

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        return centred / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    context = norm(tensors["latent_attention_model.latents"], f"{cross}norm_context")
    keys, values = np.split(context @ tensors[f"{cross}fn.to_kv.weight"].T, 2, axis=1)
    to_q, to_out, into, out = (
        tensors[f"{block}fn.{name}.weight"].T
        for block, name in ((cross, "to_q"), (cross, "to_out"), (gated, "net.0"), (gated, "net.2"))
    )
    size = config.get("cross_dim_head", 4096)  # as the published model, whose config.json has none

    def rows(hidden: Array) -> Array:
        query = norm(hidden, f"{cross}norm") @ to_q
        seen = []
        for head in range(config.get("num_cross_heads", 8)):
            part = slice(head * size, (head + 1) * size)
            seen.append(
                softmax(query[:, part] @ keys[:, part].T / math.sqrt(size)) @ values[:, part]
            )
        y = np.concatenate(seen, axis=1) @ to_out + hidden
        both = norm(y, f"{gated}norm") @ into + tensors[f"{gated}fn.net.0.bias"]
        value, gate = np.split(both, 2, axis=1)
        inner = value * (gate * 0.5 * (1 + _erf(gate / math.sqrt(2))))
        return inner @ out + tensors[f"{gated}fn.net.2.bias"] + y

    return np.concatenate([rows(hidden[part]) for part in parts(len(hidden))])
