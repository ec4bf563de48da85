"""Families of encoders that are built without PyTorch: BERT, RoBERTa, MPNet, DistilBERT.

They are one post-norm transformer under four sets of names. They also differ in how positions are
counted, in whether there are token types, and in MPNet's bias for the distance between two tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.settings import only, read_json
from vcs_export.checkpoint.transformer import (
    CONFIG,
    Checkpoint,
    TransformerConfig,
    open_checkpoint,
    transformer_settings,
)
from vcs_export.checkpoint.xlm_roberta import PAD
from vcs_export.errors import CheckpointError

RELATIVE = "encoder.relative_attention_bias.weight"
"""MPNet's table, `(BUCKETS, heads)`: the bias of a score for the distance of its two tokens."""

BUCKETS = 32
"""Rows of `RELATIVE`. The published model always has this number, whatever its settings say."""


@dataclass(frozen=True)
class EncoderConfig(TransformerConfig):
    """The settings that determine the graph of an encoder."""

    from_pad: bool  # positions are counted from the pad's, as in RoBERTa, instead of from 0
    relative: bool  # there is a table `RELATIVE`

    @property
    def capacity(self) -> int:
        """As in `TransformerConfig`. Positions up to the pad's belong to no token."""
        return self.max_position_embeddings - (PAD + 1 if self.from_pad else 0)


EncoderCheckpoint = Checkpoint[EncoderConfig]


@dataclass(frozen=True)
class Family:
    """How a family differs from BERT."""

    prefix: str  # of the encoder's tensor names in checkpoints with a task head
    settings: Mapping[str, str]  # its names for BERT's settings
    # Its names for parts of BERT's tensor names, replaced one after the other.
    tensors: Mapping[str, str]
    implied: Mapping[str, Any]  # settings that its `config.json` does not have
    from_pad: bool = False
    types: bool = True  # there are token types
    relative: bool = False


_ROBERTA = Family("roberta.", {}, {}, {}, from_pad=True)
FAMILIES = {
    "bert": Family("bert.", {}, {}, {}),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": Family(
        "mpnet.",
        {},
        {
            "attention.self.query": "attention.attn.q",
            "attention.self.key": "attention.attn.k",
            "attention.self.value": "attention.attn.v",
            "attention.output.dense": "attention.attn.o",
            "attention.output.LayerNorm": "attention.LayerNorm",
        },
        {"type_vocab_size": 1},
        from_pad=True,
        types=False,
        relative=True,
    ),
    "distilbert": Family(
        "distilbert.",
        {
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
        },
        {
            "encoder.layer.": "transformer.layer.",
            "attention.self.query": "attention.q_lin",
            "attention.self.key": "attention.k_lin",
            "attention.self.value": "attention.v_lin",
            "attention.output.dense": "attention.out_lin",
            "attention.output.LayerNorm": "sa_layer_norm",
            "intermediate.dense": "ffn.lin1",
            "output.dense": "ffn.lin2",
            "output.LayerNorm": "output_layer_norm",
        },
        {"type_vocab_size": 1, "layer_norm_eps": 1e-12},
        types=False,
    ),
}
"""The families by the `model_type` in `config.json`."""


def model_type(folder: Path) -> str:
    """Return the `model_type` in `config.json`. Raises CheckpointError."""
    data = read_json(folder / CONFIG)
    kind = data.get("model_type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise CheckpointError(f"{folder / CONFIG}: model_type must be a string, not {kind!r}")
    return kind


def open_encoder(folder: Path) -> EncoderCheckpoint:
    """Open a checkpoint of one of `FAMILIES`.

    Its tensors are looked up by BERT's names. Raises CheckpointError.
    """
    config = encoder_config(folder)
    family = FAMILIES[model_type(folder)]

    def stored(name: str) -> str:
        for berts, stored_part in family.tensors.items():
            name = name.replace(berts, stored_part)
        return name

    further = {RELATIVE: (BUCKETS, config.num_attention_heads)} if family.relative else {}
    return open_checkpoint(folder, config, ("", family.prefix), further, stored=stored)


def encoder_config(folder: Path) -> EncoderConfig:
    """Read the settings of a checkpoint of one of `FAMILIES`. Raises CheckpointError."""
    path, kind = folder / CONFIG, model_type(folder)
    data, family = read_json(path), FAMILIES.get(kind)
    if family is None:
        raise CheckpointError(f"{path}: model_type {kind!r} is not one of {', '.join(FAMILIES)}")
    renamed = {}
    for berts, key in family.settings.items():
        if key not in data:  # the check below would name BERT's setting
            raise CheckpointError(f"{path}: {key} is missing")
        renamed[berts] = data[key]
    settings = transformer_settings(path, {**family.implied, **data, **renamed}, [kind])
    config = EncoderConfig(**settings, from_pad=family.from_pad, relative=family.relative)
    if family.from_pad:
        only(path, data, "pad_token_id", PAD, PAD)
    if family.relative:
        only(path, data, "relative_attention_num_buckets", BUCKETS, BUCKETS)
    if config.capacity < 3:
        raise CheckpointError(
            f"{path}: max_position_embeddings {config.max_position_embeddings} leaves no room for a"
            " token"
        )
    return config if family.types else replace(config, type_vocab_size=0)
