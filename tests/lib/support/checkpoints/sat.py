"""A random SaT in the folder layout of its authors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import NFKC, Nmt, Sequence
from tokenizers.pre_tokenizers import Metaspace, WhitespaceSplit
from tokenizers.pre_tokenizers import Sequence as PreSequence
from tokenizers.processors import TemplateProcessing

from support.checkpoints.bert import encoder_tensors
from support.checkpoints.files import Tensors, drawn, write_json
from support.checkpoints.tokenizers import PLAIN_WORDS

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # with XLM-R's ids, 0 to 3

MASK = "<mask>"  # the last id, as in XLM-R

POSITIONS = 514

WORDS = [*PLAIN_WORDS, *"The A An And Then He She They It His Her Two".split()]

_LETTERS = "etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789.,;:!?'\"-()"

_FOREIGN = "äöüßéèñçаеионтслвкмд,。、的一是不了人我在有他这ابتثجحدرسعفقكلمنهوي한국어日本語😀🎉👍"


def _vocabulary() -> list[tuple[str, float]]:
    """List pieces with their log-probabilities: whole words, halves, characters."""
    frequent = [f"\u2581{word}" for word in WORDS]
    halves = [piece for word in WORDS if len(word) > 3 for piece in (f"\u2581{word[:2]}", word[2:])]
    letters = [f"\u2581{letter}" for letter in _LETTERS[:52]]
    pieces = [(piece, -4.0 - 0.01 * i) for i, piece in enumerate(dict.fromkeys(frequent))]
    pieces += [
        (piece, -7.0 - 0.01 * i) for i, piece in enumerate(dict.fromkeys([*halves, *letters]))
    ]
    pieces += [
        (c, -10.0 - 0.01 * i) for i, c in enumerate(dict.fromkeys("\u2581" + _LETTERS + _FOREIGN))
    ]
    seen = dict.fromkeys(SPECIAL, 0.0)
    for piece, score in pieces:
        seen.setdefault(piece, score)
    return [*seen.items(), (MASK, 0.0)]


VOCABULARY = _vocabulary()


def tiny_sat_tokenizer() -> Tokenizer:
    """Make a Unigram tokenizer of XLM-R's kind, with its special tokens and ids."""
    tokenizer = Tokenizer(Unigram(VOCABULARY, unk_id=SPECIAL.index("<unk>"), byte_fallback=False))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.add_special_tokens([AddedToken(MASK, lstrip=True, normalized=False)])
    tokenizer.normalizer = Sequence([Nmt(), NFKC()])
    tokenizer.pre_tokenizer = PreSequence([WhitespaceSplit(), Metaspace()])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    # Left in, both would cut every text without a word: a trap.
    tokenizer.enable_truncation(max_length=16)
    tokenizer.enable_padding(length=16, pad_id=1, pad_token="<pad>")
    return tokenizer


def tiny_sat_tensors(
    hidden: int,
    layers: int,
    intermediate: int,
    num_labels: int,
    seed: int = 0,
    prefix: str = "roberta.",
) -> Tensors:
    """Draw tensors of a SaT checkpoint, whose probabilities spread around usual thresholds."""
    normal = partial(drawn, np.random.default_rng(seed), scale=0.3)
    encoder = {
        "embeddings.word_embeddings.weight": normal(len(VOCABULARY), hidden, scale=1.0),
        "embeddings.position_embeddings.weight": normal(POSITIONS, hidden),
        "embeddings.token_type_embeddings.weight": normal(1, hidden),
        "embeddings.LayerNorm.weight": normal(hidden, scale=0.1, centre=1.0),
        "embeddings.LayerNorm.bias": normal(hidden, scale=0.1),
    }
    encoder |= encoder_tensors(normal, hidden, layers, intermediate)
    return {
        **{prefix + name: tensor for name, tensor in encoder.items()},
        "classifier.weight": normal(num_labels, hidden, scale=2.5 / np.sqrt(hidden)),
        "classifier.bias": normal(num_labels, scale=0.1, centre=-2.0),
    }


def write_tiny_sat(
    folder: Path,
    *,
    layers: int = 3,
    lookahead: int | None = None,
    num_labels: int = 1,
    hidden: int = 32,
    heads: int = 4,
    seed: int = 0,
    prefix: str = "roberta.",
    half: bool = False,
    **config: Any,
) -> Path:
    """Write a tiny random checkpoint into `folder` (made if need be) and return the folder.

    lookahead  None: every token sees every other (`-sm` and no-limited-lookahead models)
    prefix     put before the encoder's tensor names;  half  store the tensors in half precision
    config     overrides of config.json, for tests of what is refused
    """
    folder.mkdir(parents=True, exist_ok=True)
    intermediate = 2 * hidden
    tensors: dict[str, Any] = dict(
        tiny_sat_tensors(hidden, layers, intermediate, num_labels, seed, prefix)
    )
    if half:
        tensors = {name: tensor.astype(np.float16) for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tiny_sat_tokenizer().save(str(folder / "tokenizer.json"))
    labels = {str(i): f"LABEL_{i}" for i in range(num_labels)}
    settings = {
        "architectures": ["SubwordXLMForTokenClassification"],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "id2label": labels,
        "intermediate_size": intermediate,
        "label2id": {name: int(i) for i, name in labels.items()},
        "layer_norm_eps": 1e-5,
        "lookahead": lookahead,
        "lookahead_split_layers": None,
        "max_position_embeddings": POSITIONS,
        "mixture_name": "xlm-token",
        "model_type": "xlm-token",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "pad_token_id": 1,
        "position_embedding_type": "absolute",
        "type_vocab_size": 1,
        "vocab_size": len(VOCABULARY),
    }
    special = {"bos": 0, "eos": 2, "cls": 0, "sep": 2, "unk": 3, "pad": 1}
    tokenizer_config = {
        "tokenizer_class": "XLMRobertaTokenizer",
        "model_max_length": 512,
        **{f"{name}_token": SPECIAL[i] for name, i in special.items()},
        "mask_token": MASK,
    }
    write_json(folder / "config.json", {**settings, **config})
    write_json(folder / "tokenizer_config.json", tokenizer_config)
    return folder
