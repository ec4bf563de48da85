"""A random NV-Embed of a few hundred kilobytes, in the folder layout of its authors: no PyTorch, no network."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteFallback, Fuse
from tokenizers.decoders import Sequence as DecoderSequence
from tokenizers.models import BPE
from tokenizers.normalizers import Prepend, Replace, Sequence
from tokenizers.processors import TemplateProcessing

from support.outliers import plant
from vcs_export.families.nv_embed import build_nv_embed_bundle
from vcs_export.families.streamed_bundle import Quantization, TextSettings
from vcs_export.write import BundleInfo

T = TypeVar("T")
SPECIAL = ("<unk>", "<s>", "</s>")  # with Mistral's ids, 0 to 2
WORDS = (
    "the a an and then while with on in at into over near of to from by is are was he she they it his her "
    "man woman boy girl dog cat horse bird kitchen street garden river table chair ball cup knife bread "
    "door window car red blue green white small large young old slowly quickly two three walks runs sits "
    "stands holds opens closes cuts pours throws looks smiles turns camera scene first next finally "
    "Instruct: Query: Describe question retrieve text"
).split()
_SPACE = "\u2581"
_LETTERS = "etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789.,;:!?'\"-()\n"
_SAFETENSORS = {"F32": ir.DataType.FLOAT, "F16": ir.DataType.FLOAT16, "BF16": ir.DataType.BFLOAT16}


def _vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Pieces and merges as BPE learns them: bytes, characters, then each word from its front to its end."""
    pieces = dict.fromkeys([*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), _SPACE, *_LETTERS])
    merges = {}
    for word in WORDS:
        whole = _SPACE
        for letter in word:
            merges[whole, letter] = None
            whole += letter
            pieces[whole] = None
    return {piece: i for i, piece in enumerate(pieces)}, list(merges)


VOCABULARY, _MERGES = _vocabulary()


def tiny_nv_embed_tokenizer() -> Tokenizer:
    """A tokenizer of Mistral's kind: BPE with bytes for what it does not know; puts `<s>` before, no `</s>`."""
    tokenizer = Tokenizer(BPE(VOCABULARY, _MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.normalizer = Sequence([Prepend(_SPACE), Replace(" ", _SPACE)])
    tokenizer.decoder = DecoderSequence([ByteFallback(), Fuse()])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


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
    names = sorted(tensors)
    parts = [names[i::shards] for i in range(shards)]
    files = ["model.safetensors"]
    if shards > 1:
        files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
        places = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), "utf-8")
    for file, part in zip(files, parts, strict=True):
        write_safetensors(folder / file, {name: tensors[name] for name in part}, dtype)
    tiny_nv_embed_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    return folder


def write_safetensors(path: Path, tensors: dict[str, NDArray[np.float32]], dtype: str = "F32") -> None:
    """A safetensors file of any float type: the library's own writer for NumPy has no bfloat16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    contents, end = [], 0
    for name, tensor in tensors.items():
        content = tensor.astype(_SAFETENSORS[dtype].numpy()).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(content)],
        }
        contents.append(content)
        end += len(content)
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    path.write_bytes(len(start).to_bytes(8, "little") + start + b"".join(contents))


def build_tiny_nv_embed_bundle(folder: Path, *, checkpoint: Path | None = None, **options: Any) -> Path:
    """Build `folder/bundle` from `checkpoint`, or from a tiny one that is written to `folder/checkpoint`.

    `options` are arguments of `build_nv_embed_bundle`, or fields of its `BundleInfo`, `Quantization` and `TextSettings`.
    """
    source = checkpoint or write_tiny_nv_embed(folder / "checkpoint")
    about = {"name": "tiny-nv-embed", "licence": "CC0-1.0", "source": "random numbers", "precision": "fp32"}
    options = {**about, **options}

    def take(kind: type[T]) -> T:
        return kind(**{item.name: options.pop(item.name) for item in fields(kind) if item.name in options})  # type: ignore[arg-type]

    info, quantization, text = take(BundleInfo), take(Quantization), take(TextSettings)
    return build_nv_embed_bundle(source, folder / "bundle", info, quantization, text=text, **options)
