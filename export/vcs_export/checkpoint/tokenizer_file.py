"""Reading a checkpoint's `tokenizer.json`: without what the runtime does itself, and only the model's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from vcs_export.checkpoint.settings import read_json
from vcs_export.errors import CheckpointError


def bare_tokenizer(path: Path, vocab_size: int | None = None) -> bytes:
    """Read a `tokenizer.json` without its truncation and padding.

    Checkpoints carry the settings of the last training run, such as 128 tokens, padded to 128, in MiniLM's.
    They would silently cut every longer text. The runtime pads and cuts windows itself. Added tokens with ids
    from `vocab_size` on are left out. Raises CheckpointError.
    """
    data: Any = read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise CheckpointError(f"{path}: not a tokenizer.json: it has no `model`")
    data["truncation"] = None
    data["padding"] = None
    if vocab_size is not None:
        added = data.get("added_tokens") or ()
        try:
            data["added_tokens"] = [item for item in added if item["id"] < vocab_size]
        except (TypeError, KeyError):
            raise CheckpointError(f"{path}: not a tokenizer.json: its added_tokens have no ids") from None
    return (json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def loaded_tokenizer(path: Path, vocab_size: int | None = None) -> tuple[bytes, Tokenizer]:
    """Return the bytes of `bare_tokenizer`, and the tokenizer loaded from them. Raises CheckpointError."""
    content = bare_tokenizer(path, vocab_size)
    try:
        return content, Tokenizer.from_buffer(content)
    except Exception as error:  # the library has no error class of its own
        raise CheckpointError(f"{path}: not a tokenizer: {str(error).splitlines()[0]}") from None


def checked_tokenizer(path: Path, vocab_size: int, special: Mapping[str, int]) -> bytes:
    """Read a `tokenizer.json` as `bare_tokenizer` does. Raises CheckpointError if it is another model's."""
    content, tokenizer = loaded_tokenizer(path)
    if (size := tokenizer.get_vocab_size()) != vocab_size:
        raise CheckpointError(
            f"{path}: {size} tokens, but the model has {vocab_size} (vocab_size): "
            "this is another model's tokenizer"
        )
    for token, expected in special.items():
        if (actual := tokenizer.token_to_id(token)) != expected:
            raise CheckpointError(f"{path}: {token} must have the id {expected}, not {actual}")
    return content


def bert_special_tokens(path: Path) -> tuple[int, int]:
    """Return the ids that BERT puts before and after a text. Raises CheckpointError if it has none."""
    tokenizer = Tokenizer.from_file(str(path))
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if first is None or last is None:
        raise CheckpointError(f"{path}: [CLS] or [SEP] is missing")
    return first, last
