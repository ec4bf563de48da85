"""Reading a ModernBERT checkpoint, every assumption checked.

In most of its layers a token sees only near tokens. Tokens are rotated by position. These layers
have another base of the frequencies than the layers in which a token sees the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.settings import SIZES, above_zero, only, positive, positives, read_json
from vcs_export.checkpoint.transformer import (
    CONFIG,
    Checkpoint,
    TransformerConfig,
    head_size,
    open_tensors,
)
from vcs_export.errors import CheckpointError

KIND = "modernbert"
"""The `model_type` in `config.json`."""

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
# Checkpoints saved from a model with a head have a prefix.
_PREFIXES = ("", "model.")


@dataclass(frozen=True)
class ModernBertConfig(TransformerConfig):
    """The settings that determine the graph."""

    local_layers: tuple[bool, ...]  # for each layer, whether its tokens see only near tokens
    local_attention: int  # length of the window: half of it is on each side of a token
    global_rope_theta: float
    local_rope_theta: float

    @property
    def reach(self) -> int:
        """The largest distance at which a token sees another one in a layer with a window."""
        return self.local_attention // 2


ModernBertCheckpoint = Checkpoint[ModernBertConfig]


def open_modernbert(folder: Path) -> ModernBertCheckpoint:
    """Open the checkpoint in `folder`. Tensors are read on demand. Raises CheckpointError."""
    path = folder / CONFIG
    config = modernbert_config(path, read_json(path))
    return open_tensors(folder, config, modernbert_shapes(config), "layers.", _PREFIXES)


def modernbert_config(path: Path, data: Any) -> ModernBertConfig:
    """Read the settings from the content `data` of the `config.json` at `path`.

    Raises CheckpointError.
    """
    only(path, data, "model_type", KIND, None)
    for key, supported in (
        ("hidden_activation", "gelu"),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("norm_bias", False),
        ("rope_scaling", None),
    ):
        only(path, data, key, supported, supported)
    counts = positives(path, data, *SIZES)
    if head_size(path, counts) % 2:
        raise CheckpointError(f"{path}: attention heads of odd size cannot be rotated")
    return ModernBertConfig(
        **counts,
        type_vocab_size=0,
        layer_norm_eps=above_zero(path, data, "norm_eps"),
        local_layers=_local_layers(path, data, counts["num_hidden_layers"]),
        local_attention=positive(path, data, "local_attention"),
        global_rope_theta=_rope_theta(path, data, _GLOBAL, "global_rope_theta"),
        local_rope_theta=_rope_theta(path, data, _LOCAL, "local_rope_theta"),
    )


def modernbert_shapes(config: ModernBertConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor by its name in the checkpoint."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.tok_embeddings.weight": (config.vocab_size, hidden),
        "embeddings.norm.weight": (hidden,),
    }
    for layer in range(config.num_hidden_layers):
        prefix = f"layers.{layer}."
        if layer:  # the embeddings have just been normalised
            shapes[f"{prefix}attn_norm.weight"] = (hidden,)
        shapes |= {
            f"{prefix}attn.Wqkv.weight": (3 * hidden, hidden),
            f"{prefix}attn.Wo.weight": (hidden, hidden),
            f"{prefix}mlp_norm.weight": (hidden,),
            f"{prefix}mlp.Wi.weight": (2 * inner, hidden),
            f"{prefix}mlp.Wo.weight": (hidden, inner),
        }
    return {**shapes, "final_norm.weight": (hidden,)}


def _local_layers(path: Path, data: Any, layers: int) -> tuple[bool, ...]:
    """Return for each layer whether its tokens see only near tokens."""
    kinds = data.get("layer_types")
    if kinds is None or "global_attn_every_n_layers" in data:
        every = positive(path, data, "global_attn_every_n_layers")
        expected = [_LOCAL if layer % every else _GLOBAL for layer in range(layers)]
        if kinds not in (None, expected):
            raise CheckpointError(
                f"{path}: layer_types contradicts global_attn_every_n_layers {every}"
            )
        kinds = expected
    known = isinstance(kinds, list) and set(map(str, kinds)) <= {_GLOBAL, _LOCAL}
    if not known or len(kinds) != layers:
        raise CheckpointError(f"{path}: layer_types must be {layers} times {_GLOBAL} or {_LOCAL}")
    return tuple(kind == _LOCAL for kind in kinds)


def _rope_theta(path: Path, data: Any, layers: str, theta: str) -> float:
    """Return the base for one kind of layers, which releases of transformers spell in two ways."""
    parameters = data.get("rope_parameters")
    if parameters is None:
        return above_zero(path, data, theta)
    settings = parameters.get(layers) if isinstance(parameters, dict) else None
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path}: rope_parameters has no object {layers}")
    # Under full names, which errors show.
    place = f"rope_parameters.{layers}"
    named = {f"{place}.{key}": value for key, value in settings.items()}
    only(path, named, f"{place}.rope_type", "default", None)
    if unknown := set(settings) - {"rope_type", "rope_theta"}:
        raise CheckpointError(f"{path}: {place}: {', '.join(sorted(unknown))} is not supported")
    return above_zero(path, named, f"{place}.rope_theta")
