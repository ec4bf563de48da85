"""Random decoders in the spelling of other releases of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.checkpoints import decoder
from support.checkpoints.files import write_json

SPELLINGS = (4, 5)
"""Releases of transformers whose spelling `config.json` may have."""


def write_tiny_decoder(
    folder: Path, family: str, *, spelling: int = 4, without: Sequence[str] = (), **options: Any
) -> Path:
    """Write a tiny decoder, with `config.json` in a transformers spelling, `without` some keys."""
    path = decoder.write_tiny_decoder(folder, family, **options) / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config = new_spelling(config) if spelling == 5 else config
    write_json(path, {key: value for key, value in config.items() if key not in without})
    return folder


def new_spelling(config: Mapping[str, Any]) -> dict[str, Any]:
    """Spell `config.json` as transformers 5 does: all rotations in one object."""
    written = dict(config)
    theta, scaling = written.pop("rope_theta"), written.pop("rope_scaling", None)
    rotation = {"rope_type": "default", **(scaling or {}), "rope_theta": theta}
    if (local := written.pop("rope_local_base_freq", None)) is not None:
        written["rope_parameters"] = {
            "full_attention": rotation,
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        }
    else:
        written["rope_parameters"] = rotation
    written["dtype"] = written.pop("torch_dtype")
    return written
