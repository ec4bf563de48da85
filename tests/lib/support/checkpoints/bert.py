"""A random BERT in the folder layout of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from support.checkpoints.files import Tensors, drawn, write_json

WORDS = (
    "a an the and then while with on in at into over under near of to from by is are was he she"
    " they it its man woman boy girl dog cat horse bird kitchen street garden river table chair"
    " ball cup knife bread onion door window car red blue green white small large young old slowly"
    " quickly two three walks runs sits stands holds opens closes cuts pours throws looks smiles"
    " turns camera scene first next finally "
).split()

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

PIECES = [
    *"abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-()",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"),
]

VOCABULARY = {piece: i for i, piece in enumerate(dict.fromkeys([*SPECIAL, *PIECES, *WORDS]))}


def tiny_tensors(
    hidden: int, layers: int, intermediate: int, positions: int, seed: int = 0
) -> Tensors:
    """Draw tensors under BERT's checkpoint names; different texts get different vectors."""
    normal = partial(drawn, np.random.default_rng(seed), scale=0.3)
    tensors = {
        "embeddings.word_embeddings.weight": normal(len(VOCABULARY), hidden, scale=1.0),
        "embeddings.position_embeddings.weight": normal(positions, hidden),
        "embeddings.token_type_embeddings.weight": normal(2, hidden),
        "embeddings.LayerNorm.weight": normal(hidden, scale=0.1, centre=1.0),
        "embeddings.LayerNorm.bias": normal(hidden, scale=0.1),
        "pooler.dense.weight": normal(hidden, hidden),
        "pooler.dense.bias": normal(hidden),
    }
    return tensors | encoder_tensors(normal, hidden, layers, intermediate)


def encoder_tensors(
    normal: Callable[..., NDArray[np.float32]], hidden: int, layers: int, intermediate: int
) -> Tensors:
    """Make the layers of BERT and XLM-R of numbers that `normal` draws."""
    tensors = {}
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        for name, out, inputs in (
            ("attention.self.query", hidden, hidden),
            ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", intermediate, hidden),
            ("output.dense", hidden, intermediate),
        ):
            tensors[f"{prefix}{name}.weight"] = normal(out, inputs, scale=1.5 / np.sqrt(inputs))
            tensors[f"{prefix}{name}.bias"] = normal(out, scale=0.1)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            tensors[f"{prefix}{name}.weight"] = normal(hidden, scale=0.1, centre=1.0)
            tensors[f"{prefix}{name}.bias"] = normal(hidden, scale=0.1)
    return tensors


def tiny_tokenizer() -> Tokenizer:
    """Make a WordPiece tokenizer over `WORDS` and single characters, normalised as BERT does."""
    tokenizer = Tokenizer(WordPiece(VOCABULARY, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", VOCABULARY["[CLS]"]), ("[SEP]", VOCABULARY["[SEP]"])],
    )
    # The real checkpoint ships with both switched on, at a length shorter than the model's: a trap.
    tokenizer.enable_truncation(max_length=16)
    tokenizer.enable_padding(length=16)
    return tokenizer


def write_tiny_checkpoint(
    folder: Path,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 4,
    max_position: int = 64,
    max_tokens: int = 32,
    seed: int = 0,
    **config: Any,
) -> Path:
    """Write a tiny random checkpoint into `folder` (made if need be) and return the folder.

    max_position  rows of the position table; max_tokens  `max_seq_length` of sentence_bert_config.json;
    config        overrides of config.json, for tests of what is refused
    """
    intermediate = 4 * hidden
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        tiny_tensors(hidden, layers, intermediate, max_position, seed),
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "architectures": ["BertModel"],
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": max_position,
        "model_type": "bert",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "type_vocab_size": 2,
        "vocab_size": len(VOCABULARY),
    }
    pooling = {
        "word_embedding_dimension": hidden,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False,
    }
    write_json(folder / "config.json", {**settings, **config})
    write_json(folder / "1_Pooling/config.json", pooling)
    data = {"max_seq_length": max_tokens, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", data)
    write_modules(folder, ["Transformer", "Pooling", "Normalize"])
    return folder


def write_modules(folder: Path, kinds: Sequence[str]) -> None:
    """Write `modules.json`: the steps from a text to its vector, each with its folder."""
    paths = [f"{i}_{kind}" if i else "" for i, kind in enumerate(kinds)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    write_json(folder / "modules.json", modules)
