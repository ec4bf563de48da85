"""Qwen2, such as gte-Qwen2: queries, keys and values have biases.

gte-Qwen2 comes with Python code. The code runs one of the two sizes causally, although `is_causal`
is false in its `config.json`, and the other one in both directions. A folder with that code
therefore does not say how its tokens see each other: a recipe or the caller must.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcs_export.checkpoint.decoder import decoder_config
from vcs_export.checkpoint.decoders.family import (
    FamilySettings,
    causal,
    no_windows,
    remote_code,
    rotation,
)
from vcs_export.errors import CheckpointError

_GTE = "modeling_qwen.Qwen2Model"
_END = "<|endoftext|>"


def read(path: Path, data: Any, attention: bool | None) -> FamilySettings:
    """Read a `config.json`, as `checkpoint.decoders.opening.Reader` says."""
    gte = remote_code(path, data, {_GTE})
    no_windows(path, data)
    if gte and attention is None:
        raise CheckpointError(
            f"{path}: auto_map runs the model's own code {_GTE}, which does not read is_causal:"
            " name the model (--recipe) or the attention (--attention)"
        )
    sees = attention if gte and attention is not None else causal(path, data)
    config = decoder_config(path, data, rotation(path, data), causal=sees, qkv_bias=True)
    # The code of gte-Qwen2's tokenizer puts an end token after a text; tokenizer.json does not.
    return FamilySettings(config, end_token=_END if gte else "", needs_end=True)
