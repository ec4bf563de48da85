"""Llama 3, and llama-embed-nemotron, whose tokens see each other in both directions."""

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
from vcs_export.checkpoint.settings import only

BIDIRECTIONAL = "llama_bidirec"
_CODE = "llama_bidirectional_model.LlamaBidirectionalModel"


def read(path: Path, data: Any, attention: bool | None) -> FamilySettings:
    """Read a `config.json`, as `checkpoint.decoders.opening.Reader` says."""
    no_windows(path, data)
    both = data["model_type"] == BIDIRECTIONAL
    remote_code(path, data, {_CODE} if both else ())
    if both:
        # Only the release of its time runs it in both directions: newer releases of transformers
        # would run it causally.
        only(path, data, "is_causal", False, False)
        only(path, data, "use_bidirectional_attention", True, True)
        only(path, data, "pooling", "avg", "avg")
    sees = False if both else causal(path, data)
    config = decoder_config(path, data, rotation(path, data), causal=sees)
    return FamilySettings(config, pooling="mean" if both else None)
