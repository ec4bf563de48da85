"""Reading a BERT checkpoint in the folder layout of sentence-transformers, with every assumption checked.

What the graph relies on is checked here and refused by name if it does not hold, so that a checkpoint is
either exported right or not at all: the settings, and each tensor's name, shape and type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vcs_export.errors import CheckpointError, os_reason

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
# What a checkpoint folder must hold; paths as sentence-transformers writes them.
FILES = (
    WEIGHTS,
    TOKENIZER,
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
# Prefixes that checkpoints saved from a model with a task head put before BERT's own names.
_PREFIXES = ("", "bert.")

_T = TypeVar("_T", str, int, float, bool)


@dataclass(frozen=True)
class BertConfig:
    """The settings that determine a BERT encoder's graph, with the names that `config.json` uses."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    max_seq_length: int
    """The longest input in tokens, special tokens included (`sentence_bert_config.json`)."""


class BertCheckpoint:
    """An opened checkpoint: `config`, and the tensors by the names that `BertModel` gives them."""

    def __init__(self, folder: Path, config: BertConfig, tensors: Any, prefix: str) -> None:
        self.folder = folder
        self.config = config
        self._tensors = tensors
        self._prefix = prefix

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor, float32, in the checkpoint's layout (linear weights are `(out, in)`)."""
        array: NDArray[np.float32] = self._tensors.get_tensor(self._prefix + name)
        return array


@contextmanager
def open_bert(folder: Path) -> Iterator[BertCheckpoint]:
    """Open the checkpoint in `folder`; tensors are read as they are asked for, until the context ends.

    Raises CheckpointError naming the file and what is wrong in it: a file is missing or unreadable, a
    setting has a value that the graph does not implement, a tensor is missing or has another shape or type.
    """
    config = _config(folder)
    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="numpy") as tensors:
            prefix = _check_tensors(path, tensors, expected_shapes(config))
            yield BertCheckpoint(folder, config, tensors, prefix)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged, or not a safetensors file: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {os_reason(error)}") from None


def expected_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The tensors that an encoder with these settings has, and their shapes. The pooler is not used."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.vocab_size, hidden),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, hidden),
        "embeddings.token_type_embeddings.weight": (config.type_vocab_size, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    for layer in range(config.num_hidden_layers):
        prefix = f"encoder.layer.{layer}."
        for name, shape in (
            ("attention.self.query", (hidden, hidden)),
            ("attention.self.key", (hidden, hidden)),
            ("attention.self.value", (hidden, hidden)),
            ("attention.output.dense", (hidden, hidden)),
            ("attention.output.LayerNorm", (hidden,)),
            ("intermediate.dense", (inner, hidden)),
            ("output.dense", (hidden, inner)),
            ("output.LayerNorm", (hidden,)),
        ):
            shapes[f"{prefix}{name}.weight"] = shape
            shapes[f"{prefix}{name}.bias"] = shape[:1]
    return shapes


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises CheckpointError naming the file."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {os_reason(error)}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None


def _config(folder: Path) -> BertConfig:
    path = folder / "config.json"
    data = read_json(path)
    for key, only, default in (
        ("model_type", "bert", None),
        ("hidden_act", "gelu", "gelu"),
        ("position_embedding_type", "absolute", "absolute"),
        ("is_decoder", False, False),
        ("add_cross_attention", False, False),
    ):
        _only(path, data, key, only, default)
    config = BertConfig(
        hidden_size=_positive(path, data, "hidden_size"),
        num_hidden_layers=_positive(path, data, "num_hidden_layers"),
        num_attention_heads=_positive(path, data, "num_attention_heads"),
        intermediate_size=_positive(path, data, "intermediate_size"),
        vocab_size=_positive(path, data, "vocab_size"),
        max_position_embeddings=_positive(path, data, "max_position_embeddings"),
        type_vocab_size=_positive(path, data, "type_vocab_size"),
        layer_norm_eps=_value(path, data, "layer_norm_eps", float),
        max_seq_length=_sentence_length(folder),
    )
    if config.hidden_size % config.num_attention_heads:
        raise CheckpointError(
            f"{path}: hidden_size {config.hidden_size} is not a multiple of "
            f"num_attention_heads {config.num_attention_heads}"
        )
    if config.layer_norm_eps <= 0:
        raise CheckpointError(f"{path}: layer_norm_eps must be above 0, not {config.layer_norm_eps}")
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
    # Lower-casing is the tokenizer's own normaliser; this switch would add a second one before it.
    _only(path, data, "do_lower_case", False, False)
    return _positive(path, data, "max_seq_length")


def _check_modules(path: Path) -> None:
    """The chain must be transformer, pooling and, optionally, normalisation: more would be left out."""
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
    _only(path, data, "pooling_mode_mean_tokens", True, None)
    for key in data:
        if key.startswith("pooling_mode_") and key != "pooling_mode_mean_tokens":
            _only(path, data, key, False, False)
    _only(path, data, "word_embedding_dimension", hidden, hidden)
    _only(path, data, "include_prompt", True, True)


def _check_tensors(path: Path, tensors: Any, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Check every tensor that the graph reads; returns the prefix of their names."""
    names = set(tensors.keys())
    first = next(iter(shapes))
    prefix = next((prefix for prefix in _PREFIXES if prefix + first in names), "")
    for name, shape in shapes.items():
        if prefix + name not in names:
            raise CheckpointError(f"{path}: the tensor {prefix + name} is missing")
        part = tensors.get_slice(prefix + name)
        if tuple(part.get_shape()) != shape:
            raise CheckpointError(
                f"{path}: the tensor {prefix + name} has the shape {tuple(part.get_shape())}, "
                f"config.json implies {shape}"
            )
        if part.get_dtype() != "F32":
            raise CheckpointError(
                f"{path}: the tensor {prefix + name} is {part.get_dtype()}, only F32 is supported"
            )
    layers = f"{prefix}encoder.layer."
    for name in sorted(names):
        if name.startswith(layers) and name.removeprefix(prefix) not in shapes:
            raise CheckpointError(f"{path}: the tensor {name} has no place in the model of config.json")
    return prefix


def _value(path: Path, data: Any, key: str, kind: type[_T]) -> _T:
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: a JSON object was expected")
    value = data.get(key)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CheckpointError(f"{path}: {key} must be of type {kind.__name__}, not {value!r}")
    return value


def _positive(path: Path, data: Any, key: str) -> int:
    value = _value(path, data, key, int)
    if value < 1:
        raise CheckpointError(f"{path}: {key} must be positive, not {value}")
    return value


def _only(path: Path, data: Any, key: str, only: object, default: object) -> None:
    """Refuse any value of a setting but the one that the graph implements."""
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: a JSON object was expected")
    value = data.get(key, default)
    if value != only:
        raise CheckpointError(f"{path}: {key} {value!r} is not supported, only {only!r}")
