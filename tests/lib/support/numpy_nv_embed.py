"""NV-Embed's forward pass in plain NumPy, float64, one text at a time, as published: nothing is folded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcs_export.checkpoint.nv_embed import LatentConfig, open_nv_embed

Array = NDArray[np.float64]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def embed(folder: Path, ids: list[int], skip: int = 0, *, causal: bool = False) -> Array:
    """The unit vector `(hidden,)` of one text, whose first `skip` tokens are not pooled.

    causal: what the model is not; for tests that show that it would be noticed
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = _Tensors(folder)
    hidden = _decode(tensors, config["text_config"], ids, causal)
    z = _latents(tensors, tensors.opened.latent, hidden)
    mean = z[skip:].mean(axis=0)
    vector: Array = mean / np.linalg.norm(mean)
    return vector


class _Tensors(Mapping[str, Array]):
    """The checkpoint's tensors, each read when it is asked for: it may be larger than memory."""

    def __init__(self, folder: Path) -> None:
        self.opened = open_nv_embed(folder)

    def __getitem__(self, name: str) -> Array:
        return self.opened.tensors[name].rows().astype(np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened.tensors)

    def __len__(self) -> int:
        return len(self.opened.tensors)


def _decode(tensors: Mapping[str, Array], config: Mapping[str, Any], ids: list[int], causal: bool) -> Array:
    def rms(x: Array, name: str) -> Array:
        root = np.sqrt((x**2).mean(axis=1, keepdims=True) + config["rms_norm_eps"])
        return x / root * tensors[f"embedding_model.{name}.weight"]

    def linear(x: Array, name: str) -> Array:
        return x @ tensors[f"embedding_model.{name}.weight"].T

    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    frequencies = config["rope_theta"] ** -(np.arange(0, size, 2) / size)
    angles = np.tile(np.arange(len(ids))[:, None] * frequencies, 2)

    def rotate(x: Array) -> Array:
        turned = np.concatenate([-x[:, size // 2 :], x[:, : size // 2]], axis=1)
        return x * np.cos(angles) + turned * np.sin(angles)

    x = tensors["embedding_model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"layers.{layer}."
        normed = rms(x, f"{prefix}input_layernorm")
        query, key, value = (linear(normed, f"{prefix}self_attn.{name}_proj") for name in "qkv")
        seen = []
        for head in range(heads):
            group = head // (heads // groups)
            mine, theirs = slice(head * size, (head + 1) * size), slice(group * size, (group + 1) * size)
            scores = rotate(query[:, mine]) @ rotate(key[:, theirs]).T / math.sqrt(size)
            if causal:
                scores[np.triu_indices(len(ids), 1)] = -np.inf
            seen.append(softmax(scores) @ value[:, theirs])
        x = x + linear(np.concatenate(seen, axis=1), f"{prefix}self_attn.o_proj")
        normed = rms(x, f"{prefix}post_attention_layernorm")
        gate = linear(normed, f"{prefix}mlp.gate_proj")
        inner = gate / (1 + np.exp(-gate)) * linear(normed, f"{prefix}mlp.up_proj")
        x = x + linear(inner, f"{prefix}mlp.down_proj")
    return rms(x, "norm")


def _latents(tensors: Mapping[str, Array], config: LatentConfig, hidden: Array) -> Array:
    cross, gated = (f"latent_attention_model.cross_attend_blocks.{i}." for i in (0, 1))

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        return centred / deviation * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    context = norm(tensors["latent_attention_model.latents"], f"{cross}norm_context")
    query = norm(hidden, f"{cross}norm") @ tensors[f"{cross}fn.to_q.weight"].T
    keys, values = np.split(context @ tensors[f"{cross}fn.to_kv.weight"].T, 2, axis=1)
    size = config.cross_dim_head
    seen = []
    for head in range(config.num_cross_heads):
        part = slice(head * size, (head + 1) * size)
        seen.append(softmax(query[:, part] @ keys[:, part].T / math.sqrt(size)) @ values[:, part])
    y = np.concatenate(seen, axis=1) @ tensors[f"{cross}fn.to_out.weight"].T + hidden
    both = norm(y, f"{gated}norm") @ tensors[f"{gated}fn.net.0.weight"].T + tensors[f"{gated}fn.net.0.bias"]
    value, gate = np.split(both, 2, axis=1)
    inner = value * (gate * 0.5 * (1 + _erf(gate / math.sqrt(2))))
    return inner @ tensors[f"{gated}fn.net.2.weight"].T + tensors[f"{gated}fn.net.2.bias"] + y


def softmax(x: Array) -> Array:
    """Over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Array = weights / weights.sum(axis=-1, keepdims=True)
    return out
