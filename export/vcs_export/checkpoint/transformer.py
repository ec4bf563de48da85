"""Reading and checking the files that the checkpoints of all transformers share.

Settings, and the name, shape and type of each tensor, are checked here or by a family's reader,
such as `xlm_roberta`. A checkpoint that breaks an assumption of the graph is refused by name, so
that it is either exported correctly or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vcs_export.checkpoint.safetensors_reader import (
    WEIGHTS,
    check_tensor,
    checked_finite,
    read_header,
)
from vcs_export.checkpoint.settings import SIZES, above_zero, only, positives, read_json, value
from vcs_export.errors import CheckpointError

CONFIG = "config.json"
PICKLED = "pytorch_model.bin"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class TransformerConfig:
    """Settings of a post-norm transformer's graph, under their names in BERT's `config.json`."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int  # 0: no token types
    layer_norm_eps: float

    @property
    def capacity(self) -> int:
        """The longest input that the model has positions for, special tokens included."""
        return self.max_position_embeddings


C = TypeVar("C", bound=TransformerConfig)
C_co = TypeVar("C_co", bound=TransformerConfig, covariant=True)


def _same(name: str) -> str:
    return name


class Checkpoint(Generic[C_co]):
    """An opened checkpoint, whose tensors are looked up by their names in a bare BERT encoder."""

    def __init__(
        self,
        folder: Path,
        config: C_co,
        tensors: Mapping[str, NDArray[Any]],
        prefix: str,
        stored: Callable[[str], str] = _same,
    ) -> None:
        self.folder = folder
        self.config = config
        self._tensors = tensors
        self._prefix = prefix
        self._stored = stored

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor, float32, in the checkpoint's layout: linear weights are `(out, in)`."""
        return self.head_tensor(self._prefix + self._stored(name))

    def head_tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor of the task head, float32. Its name is never prefixed."""
        return checked_finite(self._tensors[name], name, self.folder / WEIGHTS).astype(
            np.float32, copy=False
        )


def open_checkpoint(
    folder: Path,
    config: C,
    prefixes: Sequence[str],
    further: Mapping[str, tuple[int, ...]] | None = None,
    head: Mapping[str, tuple[int, ...]] | None = None,
    stored: Callable[[str], str] = _same,
) -> Checkpoint[C]:
    """Open and check the tensors of a post-norm transformer.

    `further` and `head` are the shapes of additional tensors and of a task head's tensors. `stored`
    translates BERT's name of a tensor into the checkpoint's. Raises CheckpointError.
    """
    shapes = {stored(name): shape for name, shape in expected_shapes(config).items()}
    shapes.update(further or {})
    return open_tensors(folder, config, shapes, stored("encoder.layer."), prefixes, head, stored)


def open_tensors(
    folder: Path,
    config: C,
    shapes: Mapping[str, tuple[int, ...]],
    layers: str,
    prefixes: Sequence[str],
    head: Mapping[str, tuple[int, ...]] | None = None,
    stored: Callable[[str], str] = _same,
) -> Checkpoint[C]:
    """Open and check the tensors of a checkpoint. Raises CheckpointError.

    One of `prefixes` stands before all names except the head's. Other tensors are ignored, unless
    their names begin with `layers`. Tensors are mapped, not read: float32 tensors take memory only
    in the system's cache of the file.
    """
    path = folder / WEIGHTS
    if not path.exists() and (folder / PICKLED).exists():
        raise CheckpointError(
            f"{folder}: its weights are only in {PICKLED}, and pickled files are never opened:"
            f" convert them to {WEIGHTS} on a machine with PyTorch (docs/guide/export.md)"
        )
    tensors = {tensor.name: tensor for tensor in read_header(path)}
    first = next(iter(shapes))
    prefix = next((prefix for prefix in prefixes if prefix + first in tensors), prefixes[0])
    prefixed = {prefix + name: shape for name, shape in shapes.items()}
    for name in sorted(tensors):
        if name.startswith(prefix + layers) and name not in prefixed:
            raise CheckpointError(
                f"{path}: the tensor {name} does not belong to the model of {CONFIG}"
            )
    wanted = prefixed | dict(head or {})
    checked = [check_tensor(tensors.get(name), path, name, shape) for name, shape in wanted.items()]
    content = np.memmap(path, np.uint8, "r")
    mapped = {}
    for tensor in checked:
        numbers = content[tensor.offset : tensor.offset + tensor.nbytes]
        mapped[tensor.name] = numbers.view(tensor.type.numpy()).reshape(tensor.shape)
    return Checkpoint(folder, config, mapped, prefix, stored)


def expected_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of an encoder, by BERT's name. The pooler is not used."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.vocab_size, hidden),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, hidden),
        "embeddings.token_type_embeddings.weight": (config.type_vocab_size, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    if not config.type_vocab_size:
        del shapes["embeddings.token_type_embeddings.weight"]
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


def transformer_settings(path: Path, data: Any, model_types: Sequence[str]) -> dict[str, Any]:
    """Return the fields of `TransformerConfig`.

    Raises CheckpointError for settings that no graph implements.
    """
    if (kind := value(path, data, "model_type", str)) not in model_types:
        raise CheckpointError(
            f"{path}: model_type {kind!r} is not supported, only"
            f" {' or '.join(map(repr, model_types))}"
        )
    for key, supported, default in (
        ("hidden_act", "gelu", "gelu"),
        ("position_embedding_type", "absolute", "absolute"),
        ("is_decoder", False, False),
        ("add_cross_attention", False, False),
    ):
        only(path, data, key, supported, default)
    counts = positives(path, data, *SIZES, "type_vocab_size")
    head_size(path, counts)
    return {**counts, "layer_norm_eps": above_zero(path, data, "layer_norm_eps")}


def head_size(path: Path, counts: Mapping[str, int]) -> int:
    """Return the size of an attention head.

    Raises CheckpointError if the hidden size is not a multiple.
    """
    hidden, heads = counts["hidden_size"], counts["num_attention_heads"]
    if hidden % heads:
        raise CheckpointError(
            f"{path}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}"
        )
    return hidden // heads


def bare_tokenizer(path: Path, vocab_size: int | None = None) -> bytes:
    """Read a `tokenizer.json` without its truncation and padding.

    Checkpoints have these settings from their last training run: MiniLM's cuts and pads texts to
    128 tokens. They would silently cut every longer text. The runtime cuts windows and pads. Added
    tokens with ids from `vocab_size` on are left out. Raises CheckpointError.
    """
    data: Any = read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise CheckpointError(f"{path}: not a tokenizer.json: it has no `model`")
    data["truncation"] = None
    data["padding"] = None
    if vocab_size is not None:
        added = data.get("added_tokens") or ()
        try:
            data["added_tokens"] = [item for item in added if item["id"] < vocab_size]
        except (TypeError, KeyError):
            raise CheckpointError(
                f"{path}: not a tokenizer.json: its added_tokens have no ids"
            ) from None
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{text}\n".encode("utf-8", "surrogatepass")


def loaded_tokenizer(path: Path, vocab_size: int | None = None) -> tuple[bytes, Tokenizer]:
    """Return the bytes of `bare_tokenizer`, and the tokenizer loaded from them.

    Raises CheckpointError.
    """
    content = bare_tokenizer(path, vocab_size)
    try:
        return content, Tokenizer.from_buffer(content)
    except Exception as error:  # the library has no error class
        raise CheckpointError(f"{path}: not a tokenizer: {str(error).splitlines()[0]}") from None


def checked_tokenizer(path: Path, vocab_size: int, special: Mapping[str, int]) -> bytes:
    """Read a `tokenizer.json` as `bare_tokenizer` does.

    Raises CheckpointError if it is another model's.
    """
    content, tokenizer = loaded_tokenizer(path)
    if (size := tokenizer.get_vocab_size()) != vocab_size:
        raise CheckpointError(
            f"{path}: it has {size} tokens, but the model has {vocab_size} (vocab_size): use the"
            " model's own tokenizer"
        )
    for token, expected in special.items():
        if (actual := tokenizer.token_to_id(token)) != expected:
            raise CheckpointError(f"{path}: {token} must have the id {expected}, not {actual}")
    return content


def bert_special_tokens(path: Path) -> tuple[int, int]:
    """Return the ids that BERT puts before and after a text.

    Raises CheckpointError if it has none.
    """
    tokenizer = Tokenizer.from_file(str(path))
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if first is None or last is None:
        raise CheckpointError(f"{path}: [CLS] or [SEP] is missing")
    return first, last
