"""Decoders in transformers' own classes, float32, for comparisons where PyTorch is installed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the import has to say
    import transformers

from support.checkpoints.decoder import FAMILIES
from support.safetensors_files import Array, StoredTensors

# Classes for checkpoints whose own code is not part of transformers.
_OWN_CODE = {"llama_bidirec": (transformers.LlamaConfig, transformers.LlamaModel)}
OWN_MASK = ("gte-qwen2", "nemotron")
"""Families whose own code lets all tokens see each other.

It runs with old releases of transformers only.
"""


def open_model(folder: Path, causal: bool | None = None) -> Any:
    """The transformer in `folder`, float32; `causal` where `config.json` is not to say."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    if config["model_type"] in _OWN_CODE:
        config_of, model_of = _OWN_CODE[config["model_type"]]
        config |= {"model_type": config_of.model_type, "auto_map": None}
        return model_of.from_pretrained(folder, config=config_of(**config), **how).eval()
    made = transformers.AutoModel.from_pretrained(folder, **how).eval()
    if causal is not None:
        made.config.is_causal = causal
    return made


def states(made: Any, rows: Sequence[list[int]], side: str, both_ways: bool) -> list[Array]:
    """The last hidden states of a padded batch; `both_ways`: only padding is masked."""
    longest = max(map(len, rows))
    pads = [[0] * (longest - len(ids)) for ids in rows]
    is_left = side == "left"
    ids = torch.tensor(
        [pad + row if is_left else row + pad for row, pad in zip(rows, pads, strict=True)]
    )
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    places = torch.arange(longest)
    mask = places >= longest - lengths if is_left else places < lengths
    given = mask.long()
    if both_ways:
        hidden = torch.finfo(torch.float32).min
        given = torch.zeros(len(rows), 1, longest, longest).masked_fill(
            ~mask[:, None, None, :], hidden
        )
    with torch.inference_mode():
        found = made(input_ids=ids, attention_mask=given).last_hidden_state
    return [row[seen].double().numpy() for row, seen in zip(found, mask, strict=True)]


def pooled(folder: Path, family: str, found: Array) -> Array:
    """The unit vector of a text by its token vectors, with pooling and Dense layers."""
    kind = FAMILIES[family]
    vector: Array = found[-1] if kind.pooling == "lasttoken" else found.mean(axis=0)
    for i in range(len(kind.dense)):
        vector = StoredTensors(folder / f"{i + 2}_Dense")["linear.weight"] @ vector
    return vector / np.linalg.norm(vector)
