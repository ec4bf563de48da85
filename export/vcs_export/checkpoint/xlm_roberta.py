"""Reading a SaT checkpoint: XLM-RoBERTa with a token classifier, every assumption checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.settings import only, positive, read_json, value
from vcs_export.checkpoint.transformer import (
    CONFIG,
    Checkpoint,
    TransformerConfig,
    open_checkpoint,
    transformer_settings,
)
from vcs_export.errors import CheckpointError

PAD = 1
"""The id of `<pad>`, and its row in the position table. The rows of other tokens come after it."""

# A checkpoint has no prefix if it was saved from a bare encoder, and got its head later.
_PREFIXES = ("roberta.", "")
_MAX_LAYERS = 12


@dataclass(frozen=True)
class SatConfig(TransformerConfig):
    """The settings that determine the graph of a SaT model."""

    lookahead: int | None  # number of tokens to the right that the whole model sees; None: all
    num_labels: int  # 1, a boundary, in -sm models; others also have one per punctuation mark

    @property
    def max_tokens(self) -> int:
        """The longest input in tokens, `<s>` and `</s>` included."""
        return self.max_position_embeddings - PAD - 1

    @property
    def authors_threshold(self) -> float:
        """The threshold of SaT's authors for this kind of model.

        Models adapted with LoRA need 0.5, but the settings do not reveal them.
        """
        if self.num_labels == 1:
            return 0.25  # -sm
        return 0.01 if self.lookahead is None else 0.025  # no-limited-lookahead; base

    @property
    def lookahead_per_layer(self) -> int | None:
        """The lookahead of each layer. Together, the layers reach no further than `lookahead`."""
        if self.lookahead is None:
            return None
        return self.lookahead // self.num_hidden_layers


SatCheckpoint = Checkpoint[SatConfig]


def open_sat(folder: Path) -> SatCheckpoint:
    """Open the checkpoint in `folder`. Tensors are read on demand. Raises CheckpointError."""
    config = sat_config(folder / CONFIG, read_json(folder / CONFIG))
    labels = config.num_labels
    head = {"classifier.weight": (labels, config.hidden_size), "classifier.bias": (labels,)}
    return open_checkpoint(folder, config, _PREFIXES, head=head)


def sat_config(path: Path, data: Any) -> SatConfig:
    """Read the settings from the content `data` of the `config.json` at `path`.

    Raises CheckpointError.
    """
    settings = transformer_settings(path, data, ["xlm-token", "xlm-roberta"])
    only(path, data, "pad_token_id", PAD, PAD)
    only(path, data, "lookahead_split_layers", None, None)
    config = SatConfig(**settings, lookahead=_lookahead(path, data), num_labels=_labels(path, data))
    if config.num_hidden_layers > _MAX_LAYERS:
        raise CheckpointError(
            f"{path}: num_hidden_layers {config.num_hidden_layers} is not supported, only 1 to"
            f" {_MAX_LAYERS}"
        )
    if config.max_tokens < 3:
        raise CheckpointError(
            f"{path}: max_position_embeddings {config.max_position_embeddings} leaves no room for a"
            " token"
        )
    return config


def _lookahead(path: Path, data: Any) -> int | None:
    if data.get("lookahead") is None:
        return None
    lookahead = value(path, data, "lookahead", int)
    if lookahead < 0:
        raise CheckpointError(f"{path}: lookahead must not be negative, but is {lookahead}")
    return lookahead


def _labels(path: Path, data: Any) -> int:
    """Return the number of classifier labels, from `num_labels` or `id2label` in `config.json`."""
    if "num_labels" in data:
        return positive(path, data, "num_labels")
    names = data.get("id2label")
    if not isinstance(names, dict) or not names:
        raise CheckpointError(
            f"{path}: id2label must name the classifier's labels, but it is {names!r}"
        )
    return len(names)
