"""Random decoders in the folders of their publishers.

Sizes are such that nothing is equal by chance: heads do not divide the hidden size, windows are
shorter than texts, and the scales of attention and embeddings are not 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from support.checkpoints.bert import write_modules
from support.checkpoints.files import Tensors, drawn, write_json, write_safetensors, write_shards
from support.checkpoints.tokenizers import gemma_tokenizer, llama_tokenizer, qwen_tokenizer

POSITIONS = 512

PREFIXES = ("", "model.")


@dataclass(frozen=True)
class Family:
    """What the publishers of a family have in their folders.

    config      `config.json` in the spelling of transformers 4;  tokenizer  makes its tokenizer
    pooling     as sentence-transformers names it;  dense  lengths of vectors after each Dense
    prompts     of `config_sentence_transformers.json`
    end         the token that the family's own code puts after a text, where `tokenizer.json` does not
    whole       whether it is a model that generates: `model.` before the names of tensors, and a head
    """

    config: Mapping[str, Any]
    tokenizer: Callable[[], Tokenizer]
    pooling: str
    dense: tuple[int, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    end: str = ""
    whole: bool = False


_QUERY = "Instruct: Describe the scene\nQuery: "  # Qwen3 has no space at the end

# The `config.json` of each family with tiny sizes. The window of gte-Qwen2 is not used, and Gemma's
# `query_pre_attn_scalar` is not the size of a head.
_CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("decoders.json").read_text("utf-8")
)

FAMILIES = {
    "qwen3": Family(
        _CONFIGS["qwen3"],
        qwen_tokenizer,
        "lasttoken",
        prompts={"query": _QUERY.rstrip(), "document": ""},
    ),
    "gte-qwen2": Family(
        _CONFIGS["gte-qwen2"],
        partial(qwen_tokenizer, template=False),  # code of its own puts the end token
        "lasttoken",
        prompts={"query": _QUERY},
        end="<|endoftext|>",
        whole=True,
    ),
    "nemotron": Family(
        _CONFIGS["nemotron"], llama_tokenizer, "mean", prompts={"query": _QUERY, "document": ""}
    ),
    "embedding-gemma": Family(
        _CONFIGS["embedding-gemma"],
        gemma_tokenizer,
        "mean",
        dense=(80, 48),
        prompts={"query": "task: search result | query: ", "document": "title: none | text: "},
    ),
    "kalm-gemma3": Family(
        _CONFIGS["kalm-gemma3"],
        partial(gemma_tokenizer, "<bos> $A"),
        "lasttoken",
        prompts={"query": _QUERY, "document": ""},
    ),
}


def decoder_tensors(config: Mapping[str, Any], seed: int = 0) -> Tensors:
    """Draw tensors by their names without a prefix, lively enough that each part matters."""
    rng = np.random.default_rng(seed)
    gemma = config["model_type"] == "gemma3_text"
    tensors: Tensors = {}
    for name, shape in decoder_shapes(config).items():
        # Gemma multiplies its embeddings; so much smaller are they.
        if name == "embed_tokens.weight":
            tensors[name] = drawn(rng, *shape, scale=0.3 if gemma else 1.0)
        elif "norm" in name:  # Gemma adds 1 to the weights of its norms
            tensors[name] = drawn(rng, *shape, centre=0.0 if gemma else 1.0, scale=0.3)
        else:
            tensors[name] = drawn(rng, *shape, scale=0.5 if name.endswith("bias") else None)
    return tensors


def decoder_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors by name, without a prefix, for any config."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (config["vocab_size"], config["hidden_size"])
    }
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in _layer_shapes(config)}
    return shapes | {"norm.weight": (config["hidden_size"],)}


def write_tiny_decoder(
    folder: Path,
    family: str,
    *,
    prefix: str | None = None,
    dtype: str = "F32",
    shards: int = 1,
    seed: int = 0,
    lm_head: bool | None = None,
    sentence: bool = True,
    **config: Any,
) -> Path:
    """Write a tiny random checkpoint of `family` into `folder` (made if need be) and return the
    folder.

    prefix          of the tensors' names;  lm_head  whether there is a head; both by default as published
    dtype, shards   as `write_shards` takes them
    sentence        whether there are the files of sentence-transformers
    config          overrides of `config.json`, in the spelling of transformers 4
    """
    kind = FAMILIES[family]
    tokenizer = kind.tokenizer()
    settings = {"vocab_size": tokenizer.get_vocab_size(), **kind.config, **config}
    if prefix is None:
        prefix = PREFIXES[kind.whole]
    tensors = {
        f"{prefix}{name}": tensor for name, tensor in decoder_tensors(settings, seed).items()
    }
    if kind.whole if lm_head is None else lm_head:
        tensors["lm_head.weight"] = tensors[f"{prefix}embed_tokens.weight"]
    write_decoder_files(folder, family, settings, tokenizer, sentence=sentence)
    write_shards(folder, tensors, dtype, shards)
    if sentence:
        lengths = (*kind.dense[:-1], settings["hidden_size"]) if kind.dense else ()
        write_dense(folder, settings["hidden_size"], lengths, dtype, seed)
    return folder


def write_decoder_files(
    folder: Path,
    family: str,
    config: Mapping[str, Any],
    tokenizer: Tokenizer,
    *,
    sentence: bool = True,
) -> None:
    """Write what a folder of `family` holds beside tensors, `sentence` files by choice."""
    kind = FAMILIES[family]
    write_json(folder / "config.json", config)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", _tokenizer_config(tokenizer, kind.end))
    if not sentence:
        return
    write_modules(folder, ["Transformer", "Pooling", *["Dense"] * len(kind.dense), "Normalize"])
    pool = _pooling_config(config["hidden_size"], kind.pooling)
    write_json(folder / "1_Pooling/config.json", pool)
    about = {"prompts": kind.prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", about)


def write_dense(
    folder: Path, width: int, lengths: Sequence[int], dtype: str = "F32", seed: int = 0
) -> None:
    """Write the Dense modules after the pooling, as EmbeddingGemma has them."""
    rng = np.random.default_rng(seed + 1)
    for i, length in enumerate(lengths, 2):
        place = folder / f"{i}_Dense"
        about = {
            "in_features": width,
            "out_features": length,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
        write_json(place / "config.json", about)
        weight = drawn(rng, length, width)
        write_safetensors(place / "model.safetensors", {"linear.weight": weight}, dtype)
        width = length


def _layer_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    kind = config["model_type"]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    size = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    norms = ["input_layernorm", "post_attention_layernorm"]
    if kind == "gemma3_text":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for name in norms:
        yield f"{name}.weight", (hidden,)
    for name, out, inputs in (
        ("self_attn.q_proj", queries, hidden),
        ("self_attn.k_proj", keys, hidden),
        ("self_attn.v_proj", keys, hidden),
        ("self_attn.o_proj", hidden, queries),
        ("mlp.gate_proj", inner, hidden),
        ("mlp.up_proj", inner, hidden),
        ("mlp.down_proj", hidden, inner),
    ):
        yield f"{name}.weight", (out, inputs)
        if kind == "qwen2" and name[-6:] in ("q_proj", "k_proj", "v_proj"):
            yield f"{name}.bias", (out,)
    if kind in ("qwen3", "gemma3_text"):
        yield "self_attn.q_norm.weight", (size,)
        yield "self_attn.k_norm.weight", (size,)


def _pooling_config(width: int, pooling: str) -> dict[str, Any]:
    switch = (
        "pooling_mode_lasttoken" if pooling == "lasttoken" else f"pooling_mode_{pooling}_tokens"
    )
    switches = dict.fromkeys(
        (
            "pooling_mode_cls_token",
            "pooling_mode_mean_tokens",
            "pooling_mode_max_tokens",
            "pooling_mode_mean_sqrt_len_tokens",
            "pooling_mode_weightedmean_tokens",
            "pooling_mode_lasttoken",
        ),
        False,
    )
    return {"word_embedding_dimension": width, **switches, switch: True, "include_prompt": True}


def _tokenizer_config(tokenizer: Tokenizer, end: str) -> dict[str, Any]:
    special = ("<pad>", "<|endoftext|>", "<|end_of_text|>")
    [pad] = [token for token in special if tokenizer.token_to_id(token) is not None]
    return {
        "model_max_length": POSITIONS,
        "pad_token": pad,
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({"add_eos_token": True, "eos_token": end} if end else {}),
    }
