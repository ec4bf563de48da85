"""Qwen3, such as Qwen3-Embedding: normalised query and key heads, and causal attention."""

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
from vcs_export.checkpoint.settings import positive


def read(path: Path, data: Any, attention: bool | None) -> FamilySettings:
    """Read a `config.json`, as `checkpoint.decoders.opening.Reader` says."""
    remote_code(path, data)
    no_windows(path, data)
    # The size of heads does not follow from the other sizes in this family.
    positive(path, data, "head_dim")
    config = decoder_config(
        path, data, rotation(path, data), causal=causal(path, data), qk_norm=True
    )
    return FamilySettings(config, needs_end=True)
