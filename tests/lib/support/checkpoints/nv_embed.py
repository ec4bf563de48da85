"""A random NV-Embed in the folder layout of its authors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from support.checkpoints.decoder import decoder_shapes
from support.checkpoints.files import Tensors, drawn, write_json, write_shards
from support.checkpoints.tokenizers import mistral_tokenizer

VOCABULARY = mistral_tokenizer().get_vocab()


def tiny_nv_embed_tensors(config: dict[str, Any], seed: int = 0) -> Tensors:
    """Draw tensors so lively that texts differ and each part of the model matters."""
    rng = np.random.default_rng(seed)
    normal = partial(drawn, rng)

    def norm(name: str) -> Tensors:
        return {
            f"{name}.weight": normal(hidden, centre=1.0, scale=0.1),
            f"{name}.bias": normal(hidden, scale=0.1),
        }

    text, latent = config["text_config"], config["latent_attention_config"]
    hidden = text["hidden_size"]
    tensors: Tensors = {}
    for name, shape in decoder_shapes(text).items():
        centre, scale = (1.0, 0.1) if "norm" in name else (0.0, 1.0 if "embed" in name else None)
        tensors[f"embedding_model.{name}"] = normal(*shape, centre=centre, scale=scale)
    joined = latent["num_cross_heads"] * latent["cross_dim_head"]
    cross, gated = (f"latent_attention_model.cross_attend_blocks.{i}." for i in (0, 1))
    tensors["latent_attention_model.latents"] = normal(
        latent["num_latents_value"], hidden, scale=1.0
    )
    tensors |= norm(f"{cross}norm") | norm(f"{cross}norm_context") | norm(f"{gated}norm")
    for name, out, inputs in (
        ("to_q", joined, hidden),
        ("to_kv", 2 * joined, hidden),
        ("to_out", hidden, joined),
    ):
        tensors[f"{cross}fn.{name}.weight"] = normal(out, inputs)
    for name, out, inputs in (("net.0", 8 * hidden, hidden), ("net.2", hidden, 4 * hidden)):
        tensors[f"{gated}fn.{name}.weight"] = normal(out, inputs)
        tensors[f"{gated}fn.{name}.bias"] = normal(out, scale=0.1)
    return tensors


def tiny_nv_embed_config(
    *,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 4,
    groups: int = 2,
    head_dim: int | None = None,
    intermediate: int = 48,
    latents: int = 6,
    cross_heads: int = 2,
    cross_size: int = 16,
    positions: int = 64,
) -> dict[str, Any]:
    """Make a `config.json` of the true structure."""
    return {
        "model_type": "nvembed",
        "add_eos": True,
        "add_pad_token": True,
        "hidden_size": hidden,
        "is_mask_instruction": True,
        "mask_type": "b",
        "padding_side": "right",
        "latent_attention_config": {
            "model_type": "latent_attention",
            "num_latents_value": latents,
            "num_cross_heads": cross_heads,
            "cross_dim_head": cross_size,
            "hidden_dim": hidden,
            "latent_dim": hidden,
        },
        "text_config": {
            "model_type": "bidir_mistral",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "max_position_embeddings": positions,
            "num_attention_heads": heads,
            "num_hidden_layers": layers,
            "num_key_value_heads": groups,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "sliding_window": 4,  # not applied, as in the original
            "vocab_size": len(VOCABULARY),
            **({"head_dim": head_dim} if head_dim else {}),
        },
    }


def write_tiny_nv_embed(
    folder: Path,
    *,
    shards: int = 1,
    dtype: str = "F32",
    seed: int = 0,
    change: Callable[[Tensors], None] | None = None,
    **shape: Any,
) -> Path:
    """Write a tiny random checkpoint into `folder`, and return it; `change` edits the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_nv_embed_config(**shape)
    tensors = tiny_nv_embed_tensors(config, seed)
    if change:
        change(tensors)
    write_shards(folder, tensors, dtype, shards)
    mistral_tokenizer().save(str(folder / "tokenizer.json"))
    write_json(folder / "config.json", config)
    return folder
