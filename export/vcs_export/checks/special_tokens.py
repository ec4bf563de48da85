"""The special tokens around a text, from `tokenizer.json` and the settings file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from vcs_export.checkpoint.sentence_folder import TOKENIZER_SETTINGS
from vcs_export.checkpoint.settings import read_json
from vcs_export.checkpoint.transformer import TOKENIZER
from vcs_export.errors import CheckpointError
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.tokenizer import own_special_tokens
from vcs_runtime.inference.word_pieces import SpecialTokens

NO_TOKEN = "none"
"""The name of an end token that leaves out whatever `tokenizer.json` puts after a text."""


def special_tokens(folder: Path, tokenizer: Tokenizer, end: str = "") -> SpecialTokens:
    """Return the special tokens around a text.

    `tokenizer.json` has them. `add_bos_token` and `add_eos_token` in `tokenizer_config.json` add
    further ones, as in the tokenizers of transformers 4, with which most models were published.
    `end` is the token that must close a text, `NO_TOKEN`, or "" if it is unknown. Raises
    CheckpointError if the tokenizer has no such token, its files contradict each other, or it
    changes texts.
    """
    path = folder / TOKENIZER_SETTINGS
    data = read_json(path) if path.is_file() else {}
    try:
        before, after = own_special_tokens(tokenizer)
    except BundleError as error:
        raise CheckpointError(f"{folder / TOKENIZER}: {error}") from None
    first = _added_token(path, data, tokenizer, "bos", before[:1])
    if first is not None and before[:1] != (first,):
        before = (first, *before)
    if end == NO_TOKEN:
        return before, ()
    if end:
        last: int | None = _id(folder, tokenizer, end)
    else:
        last = _added_token(path, data, tokenizer, "eos", after[-1:])
    if last is not None and after[-1:] != (last,):
        after = (*after, last)
    return before, after


def _added_token(
    path: Path, data: Any, tokenizer: Tokenizer, name: str, existing: tuple[int, ...]
) -> int | None:
    """Return the id of the token that the settings add at one end, or None.

    `existing` is the token that `tokenizer.json` puts at this end, if there is one.
    """
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must be a JSON object")
    key = f"add_{name}_token"
    added = data.get(key)
    token = data.get(f"{name}_token")
    if isinstance(token, dict):
        token = token.get("content")
    if added is None or not isinstance(token, str):
        return None
    number = _id(path.parent, tokenizer, token)
    if added:
        return number
    if existing == (number,):
        raise CheckpointError(
            f"{path}: {key} is false, but {TOKENIZER} adds {token}: releases of transformers treat"
            " this differently"
        )
    return None


def _id(folder: Path, tokenizer: Tokenizer, token: str) -> int:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise CheckpointError(f"{folder / TOKENIZER}: it has no token {token}")
    return int(number)
