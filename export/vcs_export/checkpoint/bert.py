"""Reading a BERT checkpoint in the folder layout of sentence-transformers, with every assumption checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vcs_export.checkpoint.settings import only, positive, read_json
from vcs_export.checkpoint.transformer import (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    TransformerConfig,
    open_checkpoint,
    transformer_settings,
)
from vcs_export.errors import CheckpointError

# The files of a checkpoint folder, by the paths that sentence-transformers writes.
FILES = (
    WEIGHTS,
    TOKENIZER,
    CONFIG,
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
# Prefixes of BERT's own names. Checkpoints saved from a model with a task head have one.
_PREFIXES = ("", "bert.")


@dataclass(frozen=True)
class BertConfig(TransformerConfig):
    """The settings that determine the graph of a sentence encoder."""

    max_seq_length: int


BertCheckpoint = Checkpoint[BertConfig]


@contextmanager
def open_bert(folder: Path) -> Iterator[BertCheckpoint]:
    """Open the checkpoint in `folder`. Tensors are read on demand, until the context ends."""
    with open_checkpoint(folder, _config(folder), _PREFIXES, {}, ["F32"]) as checkpoint:
        yield checkpoint


def _config(folder: Path) -> BertConfig:
    path = folder / CONFIG
    settings = transformer_settings(path, read_json(path), ["bert"])
    config = BertConfig(**settings, max_seq_length=_sentence_length(folder))
    if config.max_seq_length > config.max_position_embeddings:
        raise CheckpointError(
            f"{folder / 'sentence_bert_config.json'}: max_seq_length {config.max_seq_length} is more than "
            f"the {config.max_position_embeddings} positions of the model"
        )
    _check_modules(folder / "modules.json")
    _check_pooling(folder / "1_Pooling/config.json", config.hidden_size)
    return config


def _sentence_length(folder: Path) -> int:
    path = folder / "sentence_bert_config.json"
    data = read_json(path)
    # The tokenizer's own normaliser lower-cases; this switch would do so a second time before it.
    only(path, data, "do_lower_case", False, False)
    return positive(path, data, "max_seq_length")


def _check_modules(path: Path) -> None:
    """Refuse any chain of modules but transformer, pooling and, optionally, normalisation."""
    data = read_json(path)
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise CheckpointError(f"{path}: a list of modules was expected")
    # The class is named with its module, which has moved between releases of sentence-transformers.
    kinds = [str(item.get("type")).rpartition(".")[2] for item in data]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise CheckpointError(
            f"{path}: the modules {', '.join(kinds)} are not supported, only Transformer, Pooling, Normalize"
        )
    for item, expected in zip(data, ("", "1_Pooling"), strict=False):
        if item.get("path") != expected:
            raise CheckpointError(
                f"{path}: the path {item.get('path')!r} is not supported, only {expected!r}"
            )


def _check_pooling(path: Path, hidden: int) -> None:
    data = read_json(path)
    only(path, data, "pooling_mode_mean_tokens", True, None)
    for key in data:
        if key.startswith("pooling_mode_") and key != "pooling_mode_mean_tokens":
            only(path, data, key, False, False)
    only(path, data, "word_embedding_dimension", hidden, hidden)
    only(path, data, "include_prompt", True, True)
