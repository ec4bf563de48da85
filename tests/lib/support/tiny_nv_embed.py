"""A random NV-Embed of a few hundred kilobytes, in the folder layout of its authors: no PyTorch, no network."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from support.outliers import plant
from support.safetensors_files import write_shards
from support.tiny_tokenizers import mistral_tokenizer
from vcs_export.families.build import Build, Quantization
from vcs_export.families.nv_embed import build_nv_embed_bundle
from vcs_export.families.streamed_bundle import TextSettings
from vcs_export.write import BundleInfo

T = TypeVar("T")
VOCABULARY = mistral_tokenizer().get_vocab()


def tiny_nv_embed_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random tensors under the checkpoint's names, lively enough that texts differ and each part matters."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, centre: float = 0.0, scale: float | None = None) -> NDArray[np.float32]:
        spread = 1.2 / np.sqrt(shape[-1]) if scale is None else scale
        return (centre + spread * rng.standard_normal(shape)).astype(np.float32)

    def norm(name: str, biased: bool = True) -> dict[str, NDArray[np.float32]]:
        weight = {f"{name}.weight": normal(hidden, centre=1.0, scale=0.1)}
        return weight | ({f"{name}.bias": normal(hidden, scale=0.1)} if biased else {})

    text, latent = config["text_config"], config["latent_attention_config"]
    hidden, inner = text["hidden_size"], text["intermediate_size"]
    size = text.get("head_dim") or hidden // text["num_attention_heads"]
    queries, keys = text["num_attention_heads"] * size, text["num_key_value_heads"] * size
    tensors = {"embedding_model.embed_tokens.weight": normal(text["vocab_size"], hidden, scale=1.0)}
    for layer in range(text["num_hidden_layers"]):
        name = f"embedding_model.layers.{layer}."
        tensors |= norm(f"{name}input_layernorm", False) | norm(f"{name}post_attention_layernorm", False)
        for linear, out, inputs in (
            ("self_attn.q_proj", queries, hidden),
            ("self_attn.k_proj", keys, hidden),
            ("self_attn.v_proj", keys, hidden),
            ("self_attn.o_proj", hidden, queries),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):
            tensors[f"{name}{linear}.weight"] = normal(out, inputs)
    tensors |= norm("embedding_model.norm", False)
    joined = latent["num_cross_heads"] * latent["cross_dim_head"]
    cross, gated = (f"latent_attention_model.cross_attend_blocks.{i}." for i in (0, 1))
    tensors["latent_attention_model.latents"] = normal(latent["num_latents_value"], hidden, scale=1.0)
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
    """A `config.json` of the true structure."""
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
    outliers: tuple[int, str] | None = None,
    **shape: Any,
) -> Path:
    """Write a tiny random checkpoint into `folder` (made if need be) and return the folder.

    shards    files that the tensors are spread over, with an index if there is more than one
    dtype     how numbers are stored, as safetensors names it;  shape  as `tiny_nv_embed_config` takes it
    outliers  layer and tokens of planted outliers (`support.outliers.plant`)
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_nv_embed_config(**shape)
    tensors = tiny_nv_embed_tensors(config, seed)
    if outliers:
        plant(tensors, *outliers)
    write_shards(folder, tensors, dtype, shards)
    mistral_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    return folder


def build_tiny_nv_embed_bundle(folder: Path, *, checkpoint: Path | None = None, **options: Any) -> Path:
    """Build `folder/bundle` from `checkpoint`, or from a tiny one that is written to `folder/checkpoint`.

    `options` are fields of `Build`, or of its `BundleInfo` and `Quantization`, or of `TextSettings`.
    """
    source = checkpoint or write_tiny_nv_embed(folder / "checkpoint")
    about: dict[str, Any] = {
        "name": "tiny-nv-embed",
        "licence": "CC0-1.0",
        "source": "random numbers",
        "precision": "fp32",
    }
    about["most_change"] = 1.0  # few random numbers: a match that changes moves the mean of all pairs
    options = {**about, **options}

    def take(kind: type[T]) -> T:
        return kind(**{item.name: options.pop(item.name) for item in fields(kind) if item.name in options})  # type: ignore[arg-type]

    info, quantization, text = take(BundleInfo), take(Quantization), take(TextSettings)
    return build_nv_embed_bundle(Build(source, folder / "bundle", info, quantization, **options), text)
