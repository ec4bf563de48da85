"""Settings and tensors that the checkpoints of decoders share: Mistral, Llama and the like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.settings import above_zero, only, positive
from vcs_export.checkpoint.transformer import head_size
from vcs_export.errors import CheckpointError


@dataclass(frozen=True)
class DecoderConfig:
    """The settings that determine a decoder's graph, with the names that `config.json` uses.

    Attributes
    ----------
    causal
        Whether a token sees only the tokens before it. In embedding models it mostly sees all tokens.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    causal: bool


def decoder_config(path: Path, data: Any, causal: bool) -> DecoderConfig:
    """Read and check a decoder's settings.

    `sliding_window` is ignored: models whose tokens see each other in both directions do not apply it.

    Parameters
    ----------
    path
        The `config.json`.
    data
        The part of its content that describes the decoder.
    causal
        Whether a token sees only the tokens before it.

    Returns
    -------
    config
        The settings.

    Raises
    ------
    CheckpointError
        A setting is missing, of another type, or has a value that the graph does not implement.
    """
    for key, supported, default in (
        ("hidden_act", "silu", "silu"),
        ("attention_bias", False, False),
        ("mlp_bias", False, False),
        ("rope_scaling", None, None),
    ):
        only(path, data, key, supported, default)
    counts = {
        key: positive(path, data, key)
        for key in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
        )
    }
    heads = counts["num_attention_heads"]
    size = head_size(path, counts) if data.get("head_dim") is None else positive(path, data, "head_dim")
    if heads % counts["num_key_value_heads"]:
        raise CheckpointError(
            f"{path}: num_attention_heads {heads} is not a multiple of "
            f"num_key_value_heads {counts['num_key_value_heads']}"
        )
    if size % 2:
        raise CheckpointError(f"{path}: heads of size {size} cannot be rotated in halves")
    return DecoderConfig(
        **counts,
        head_dim=size,
        rms_norm_eps=above_zero(path, data, "rms_norm_eps"),
        rope_theta=above_zero(path, data, "rope_theta"),
        causal=causal,
    )


def decoder_shapes(config: DecoderConfig, prefix: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a decoder, by its name after `prefix`. There are no biases."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        for name, shape in (
            ("input_layernorm", (hidden,)),
            ("self_attn.q_proj", (queries, hidden)),
            ("self_attn.k_proj", (keys, hidden)),
            ("self_attn.v_proj", (keys, hidden)),
            ("self_attn.o_proj", (hidden, queries)),
            ("post_attention_layernorm", (hidden,)),
            ("mlp.gate_proj", (inner, hidden)),
            ("mlp.up_proj", (inner, hidden)),
            ("mlp.down_proj", (hidden, inner)),
        ):
            shapes[f"layers.{layer}.{name}.weight"] = shape
    shapes["norm.weight"] = (hidden,)
    return {prefix + name: shape for name, shape in shapes.items()}
