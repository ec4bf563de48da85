"""Decoders' forward pass in plain NumPy, float64, one text at a time, as published: nothing is
folded.

Settings are read from `config.json` as the families' own code reads them, not by the package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from support.safetensors_files import Array, StoredTensors

_ROWS = 512


@dataclass(frozen=True)
class Settings:
    """What a forward pass needs to know.

    A test changes one of them to show that it would be noticed.

    windows      for each layer, how near tokens must be to see each other (below it); infinite without a window
    frequencies  for each layer, by how much a head's pairs of numbers turn from a token to the next
    biases, qk_norms, sandwich  whether q, k and v have biases; whether heads of q and k are normalised; whether
                 there are norms behind attention and the feed-forward layer too
    """

    heads: int
    groups: int
    head_size: int
    epsilon: float
    causal: bool
    windows: tuple[float, ...]
    frequencies: tuple[Array, ...]
    attention_scale: float
    embedding_scale: float = 1.0
    norm_offset: float = 0.0
    activation: str = "silu"
    biases: bool = False
    qk_norms: bool = False
    sandwich: bool = False


def settings(folder: Path) -> Settings:
    """Read the settings of the checkpoint in `folder`."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    kind, layers = config["model_type"], config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    rotations = config.get("rope_parameters") or {}
    if kind == "gemma3_text":
        return _gemma(config, heads, size, rotations)
    theta = rotations.get("rope_theta", config.get("rope_theta"))
    turns = rotation_frequencies(size, theta, rotations or config.get("rope_scaling") or {})
    return Settings(
        heads=heads,
        groups=config["num_key_value_heads"],
        head_size=size,
        epsilon=config["rms_norm_eps"],
        causal=config.get("is_causal", kind in ("qwen2", "qwen3", "llama", "mistral")),
        windows=(math.inf,) * layers,
        frequencies=(turns,) * layers,
        attention_scale=size**-0.5,
        biases=kind == "qwen2",
        qk_norms=kind == "qwen3",
    )


def _gemma(
    config: Mapping[str, Any], heads: int, size: int, rotations: Mapping[str, Any]
) -> Settings:
    causal = not config.get("use_bidirectional_attention", False)
    window = config["sliding_window"] if causal else config["sliding_window"] // 2 + 1
    every = config.get("sliding_window_pattern", config.get("_sliding_window_pattern", 6))
    by_pattern = [
        "full_attention" if (i + 1) % every == 0 else "sliding_attention"
        for i in range(config["num_hidden_layers"])
    ]
    local = [name == "sliding_attention" for name in config.get("layer_types") or by_pattern]
    far = rotations.get("full_attention") or config.get("rope_scaling") or {}
    near = rotations.get("sliding_attention") or {}
    far_theta = far.get("rope_theta", config.get("rope_theta", 1e6))
    near_theta = near.get("rope_theta", config.get("rope_local_base_freq", 1e4))
    both = rotation_frequencies(size, far_theta, far), rotation_frequencies(size, near_theta, near)
    return Settings(
        heads=heads,
        groups=config["num_key_value_heads"],
        head_size=size,
        epsilon=config["rms_norm_eps"],
        causal=causal,
        windows=tuple(window if is_local else math.inf for is_local in local),
        frequencies=tuple(both[is_local] for is_local in local),
        attention_scale=config["query_pre_attn_scalar"] ** -0.5,
        embedding_scale=config["hidden_size"] ** 0.5,
        norm_offset=1.0,
        activation="gelu_tanh",
        qk_norms=True,
        sandwich=True,
    )


def rotation_frequencies(size: int, theta: float, scaling: Mapping[str, Any]) -> Array:
    """By how much each pair of a head's numbers turns from a token to the next."""
    plain: Array = theta ** -(np.arange(0, size, 2) / size)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return plain
    slow = plain / scaling["factor"]
    if kind == "linear":
        return slow
    assert kind == "llama3", kind
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    # How often a pair of numbers turns around within the window before it was made longer.
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    mixed: Array = share * plain + (1 - share) * slow
    return mixed


def token_vectors(folder: Path, ids: list[int], changed: Settings | None = None) -> Array:
    """The last hidden states `(tokens, hidden)` of one text; `changed` overrides settings."""
    tensors = StoredTensors(folder)
    prefix = "model." if "model.norm.weight" in tensors else ""
    return decode(tensors, prefix, changed or settings(folder), ids)


def decode(tensors: StoredTensors, prefix: str, given: Settings, ids: list[int]) -> Array:
    """The last hidden states `(tokens, hidden)` of one text, by tensors with a name's `prefix`."""
    heads, groups, size = given.heads, given.groups, given.head_size
    act = _ACTIVATIONS[given.activation]
    places = np.arange(len(ids))

    def rms(x: Array, name: str) -> Array:
        root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + given.epsilon)
        return x / root * (tensors[f"{prefix}{name}.weight"] + given.norm_offset)

    def linear(x: Array, name: str, biased: bool = False) -> Array:
        out = x @ tensors[f"{prefix}{name}.weight"].T
        return out + tensors[f"{prefix}{name}.bias"] if biased else out

    x = tensors.rows(f"{prefix}embed_tokens.weight", ids) * given.embedding_scale
    for layer, (window, frequencies) in enumerate(
        zip(given.windows, given.frequencies, strict=True)
    ):
        at = f"layers.{layer}."
        angles = np.tile(np.arange(len(ids))[:, None] * frequencies, 2)

        def sees(queries: slice, window: float = window) -> Array:
            apart = places[queries, None] - places
            near = np.abs(apart) < window
            return near & (apart >= 0) if given.causal else near

        def turned(x: Array, angles: Array = angles) -> Array:
            other = np.concatenate([-x[:, size // 2 :], x[:, : size // 2]], axis=1)
            return x * np.cos(angles) + other * np.sin(angles)

        normed = rms(x, f"{at}input_layernorm")
        q, k, v = (
            linear(normed, f"{at}self_attn.{name}_proj", given.biases).reshape(len(ids), -1, size)
            for name in "qkv"
        )
        if given.qk_norms:
            q, k = rms(q, f"{at}self_attn.q_norm"), rms(k, f"{at}self_attn.k_norm")
        seen = []
        for head in range(heads):
            group = head // (heads // groups)
            query, keys = turned(q[:, head]) * given.attention_scale, turned(k[:, group]).T
            rows = []
            for part in parts(len(ids)):
                rows.append(
                    softmax(np.where(sees(part), query[part] @ keys, -np.inf)) @ v[:, group]
                )
            seen.append(np.concatenate(rows))
        out = linear(np.concatenate(seen, axis=1), f"{at}self_attn.o_proj")
        x = x + (rms(out, f"{at}post_attention_layernorm") if given.sandwich else out)
        normed = rms(
            x, f"{at}{'pre_feedforward' if given.sandwich else 'post_attention'}_layernorm"
        )
        gate, up, down = (
            tensors[f"{prefix}{at}mlp.{name}_proj.weight"].T for name in ("gate", "up", "down")
        )
        out = np.concatenate(
            [(act(normed[part] @ gate) * (normed[part] @ up)) @ down for part in parts(len(ids))]
        )
        x = x + (rms(out, f"{at}post_feedforward_layernorm") if given.sandwich else out)
    return rms(x, "norm")


def embed(
    folder: Path,
    ids: list[int],
    *,
    skip: int = 0,
    pooling: str | None = None,
    dimension: int | None = None,
    **changed: Any,
) -> Array:
    """The unit vector of one text.

    skip       how many tokens at the front are not pooled
    pooling    "mean" or "lasttoken"; by default what the files of sentence-transformers say
    dimension  how many of the first numbers are used; by default all
    changed    fields of `Settings` that are not to be as the checkpoint says
    """
    states = token_vectors(folder, ids, replace(settings(folder), **changed))
    pooling = pooling or _pooling(folder)
    vector: Array = states[-1] if pooling == "lasttoken" else states[skip:].mean(axis=0)
    for place in sorted(folder.glob("*_Dense")):
        tensors = StoredTensors(place)
        vector = tensors["linear.weight"] @ vector + tensors.get("linear.bias", np.zeros(()))
    vector = vector[:dimension]
    return vector / np.linalg.norm(vector)


def token_ids(folder: Path, text: str, prompt: str = "") -> list[int]:
    """The ids of a text with its special tokens, also those that a family's code adds."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    ids: list[int] = tokenizer.encode(prompt + text).ids
    return (
        [*ids, tokenizer.token_to_id(config["eos_token"])] if config.get("add_eos_token") else ids
    )


def parts(rows: int) -> list[slice]:
    """The rows of a long text in parts: all at once would need the square of its length."""
    return [slice(start, start + _ROWS) for start in range(0, rows, _ROWS)]


def softmax(x: Array) -> Array:
    """Over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Array = weights / weights.sum(axis=-1, keepdims=True)
    return out


def _pooling(folder: Path) -> str:
    found = json.loads((folder / "1_Pooling/config.json").read_text("utf-8"))
    return "lasttoken" if found.get("pooling_mode_lasttoken") else "mean"


def _silu(x: Array) -> Array:
    out: Array = x / (1 + np.exp(-x))
    return out


def _gelu_tanh(x: Array) -> Array:
    out: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return out


_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {"silu": _silu, "gelu_tanh": _gelu_tanh}
