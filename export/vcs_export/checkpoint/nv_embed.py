"""Reading an NV-Embed checkpoint: a decoder and its trained pooling, every assumption checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.decoder import DecoderConfig, Rotation, decoder_config, decoder_shapes
from vcs_export.checkpoint.safetensors_reader import StoredTensor, open_shards
from vcs_export.checkpoint.settings import above_zero, only, positive, read_json, value
from vcs_export.checkpoint.transformer import CONFIG
from vcs_export.errors import CheckpointError

DECODER_PREFIX = "embedding_model."
LATENT_PREFIX = "latent_attention_model."
CROSS_PREFIX = f"{LATENT_PREFIX}cross_attend_blocks.0."
GATED_PREFIX = f"{LATENT_PREFIX}cross_attend_blocks.1."
GATED_WIDTH = 4
"""Width of the gated layer in multiples of the hidden size.

NV-Embed's code has no setting for it.
"""

# Settings of the latent part that the published config.json leaves out.
_LATENT_DEFAULTS = {
    "num_latents_value": 512,
    "num_cross_heads": 8,
    "cross_dim_head": 4096,
    "hidden_dim": 4096,
    "latent_dim": 4096,
}


@dataclass(frozen=True)
class LatentConfig:
    """The settings of the pooling, with the names that `latent_attention_config` uses."""

    num_latents_value: int
    num_cross_heads: int
    cross_dim_head: int
    hidden_dim: int


def latent_shapes(config: LatentConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of the pooling, by its name."""
    hidden, joined = config.hidden_dim, config.num_cross_heads * config.cross_dim_head
    wide = GATED_WIDTH * hidden
    return {
        f"{LATENT_PREFIX}latents": (config.num_latents_value, hidden),
        f"{CROSS_PREFIX}norm.weight": (hidden,),
        f"{CROSS_PREFIX}norm.bias": (hidden,),
        f"{CROSS_PREFIX}norm_context.weight": (hidden,),
        f"{CROSS_PREFIX}norm_context.bias": (hidden,),
        f"{CROSS_PREFIX}fn.to_q.weight": (joined, hidden),
        f"{CROSS_PREFIX}fn.to_kv.weight": (2 * joined, hidden),
        f"{CROSS_PREFIX}fn.to_out.weight": (hidden, joined),
        f"{GATED_PREFIX}norm.weight": (hidden,),
        f"{GATED_PREFIX}norm.bias": (hidden,),
        f"{GATED_PREFIX}fn.net.0.weight": (2 * wide, hidden),
        f"{GATED_PREFIX}fn.net.0.bias": (2 * wide,),
        f"{GATED_PREFIX}fn.net.2.weight": (hidden, wide),
        f"{GATED_PREFIX}fn.net.2.bias": (hidden,),
    }


@dataclass(frozen=True)
class NvEmbedCheckpoint:
    """An opened NV-Embed checkpoint."""

    folder: Path
    decoder: DecoderConfig
    latent: LatentConfig
    special: tuple[int, int]  # token ids before and after a text
    tensors: Mapping[str, StoredTensor]


def open_nv_embed(folder: Path) -> NvEmbedCheckpoint:
    """Open the checkpoint in `folder`.

    Only settings and headers are read. Raises CheckpointError.
    """
    path = folder / CONFIG
    data = read_json(path)
    only(path, data, "model_type", "nvembed", None)
    for key, expected in (
        ("padding_side", "right"),
        ("add_eos", True),
        ("is_mask_instruction", True),
        ("mask_type", "b"),
    ):
        only(path, data, key, expected, expected)
    text = data.get("text_config")
    only(path, text, "model_type", "bidir_mistral", None)
    # `sliding_window` is ignored, as in the original: attention in both directions has no window.
    only(path, text, "rope_scaling", None, None)
    decoder = decoder_config(
        path, text, Rotation(above_zero(path, text, "rope_theta")), causal=False
    )
    latent = _latent_config(path, data.get("latent_attention_config"), decoder.hidden_size)
    shapes = decoder_shapes(decoder, DECODER_PREFIX) | latent_shapes(latent)
    special = _token(path, text, "bos_token_id"), _token(path, text, "eos_token_id")
    return NvEmbedCheckpoint(folder, decoder, latent, special, open_shards(folder, shapes))


def _latent_config(path: Path, data: Any, hidden: int) -> LatentConfig:
    if data is None:
        data = {}
    only(path, data, "output_normalize", True, True)
    settings = {
        key: positive(path, {key: default, **data}, key)
        for key, default in _LATENT_DEFAULTS.items()
    }
    for key in ("hidden_dim", "latent_dim"):
        if settings[key] != hidden:
            raise CheckpointError(
                f"{path}: {key} {settings[key]} of the latent part is not the hidden_size {hidden}"
            )
    del settings["latent_dim"]
    return LatentConfig(**settings)


def _token(path: Path, data: Any, key: str) -> int:
    token = value(path, data, key, int)
    if token < 0:
        raise CheckpointError(f"{path}: {key} must not be negative, but is {token}")
    return token
