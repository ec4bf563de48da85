"""A tiny random Llama as a GGUF file, for llama.cpp's servers. Needs `gguf`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support.tiny_genai import word_tokenizer

HIDDEN, HEADS, INNER, CONTEXT = 32, 2, 32, 4096
SPECIAL = ["<eos>", "<user>", "<reply>"]
# The first begins a new turn after the assistant's, as templates do; the second goes on.
NEW_TURN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<reply>"
CONTINUED = (
    "<user>{{ messages[0].content }}<reply>{% if messages[1] %}{{ messages[1].content }}{% endif %}"
)


def write_gguf(path: Path, template: str, seed: int = 0) -> Path:
    """A model of one layer whose chat template is `template`; returns it."""
    import gguf

    rng = np.random.default_rng(seed)
    tokens, merges = _tokenizer()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = (gguf.TokenType.CONTROL, gguf.TokenType.NORMAL)
    writer.add_token_types([kinds[token not in SPECIAL] for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)

    def normal(*shape: int, scale: float = 1.0) -> NDArray[np.float32]:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    writer.add_tensor("token_embd.weight", normal(len(tokens), HIDDEN))
    for name, rows, columns in (
        ("attn_q", HIDDEN, HIDDEN),
        ("attn_k", HIDDEN, HIDDEN),
        ("attn_v", HIDDEN, HIDDEN),
        ("attn_output", HIDDEN, HIDDEN),
        ("ffn_gate", INNER, HIDDEN),
        ("ffn_up", INNER, HIDDEN),
        ("ffn_down", HIDDEN, INNER),
    ):
        writer.add_tensor(f"blk.0.{name}.weight", normal(rows, columns, scale=0.3))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    head = normal(len(tokens), HIDDEN, scale=0.3)
    # So that the likeliest tokens are words, not the bytes of characters.
    head[: len(SPECIAL) + 256] *= 0.3
    writer.add_tensor("output.weight", head)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tokenizer() -> tuple[list[str], list[str]]:
    """Tokens and merges."""
    model = json.loads(word_tokenizer(SPECIAL).to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [
        " ".join(pair) for pair in model["merges"]
    ]
