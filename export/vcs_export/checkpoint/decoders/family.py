"""Code shared by the decoder families: rotation in both spellings, and unsupported settings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.decoder import DecoderConfig, Llama3Scaling, Rotation
from vcs_export.checkpoint.settings import above_zero, only, positive, value
from vcs_export.errors import CheckpointError

_KEYS = ("rope_type", "type", "rope_theta")
_LINEAR = ("factor",)
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_TYPES: dict[str, tuple[str, ...]] = {"default": (), "linear": _LINEAR, "llama3": _LLAMA3}


@dataclass(frozen=True)
class FamilySettings:
    """The settings that a `config.json` and the code beside it imply."""

    config: DecoderConfig
    pooling: str | None = None  # of the model's code; None if another file names it
    end_token: str = ""  # put after a text by the model's code, whatever `tokenizer.json` says
    needs_end: bool = False  # a text must have a token after it if the last token is pooled


def check_plain(path: Path, data: Any) -> None:
    """Raise CheckpointError for quantised weights, images, sound or cross-attention."""
    for key, supported in (
        ("quantization_config", None),
        ("vision_config", None),
        ("audio_config", None),
        ("is_encoder_decoder", False),
        ("add_cross_attention", False),
    ):
        only(path, data, key, supported, supported)


def remote_code(path: Path, data: Any, known: Collection[str] = ()) -> str:
    """Return the class of the code that comes with a model, with its module, or "".

    Raises CheckpointError unless the class is one of `known`, which the graphs here implement.
    """
    classes = data.get("auto_map") or {}
    name = classes.get("AutoModel") if isinstance(classes, dict) else classes
    if name is None:
        return ""
    # A copy of a repository names the repository that has the code: "repository--module.Class".
    plain = str(name).rpartition("--")[2]
    if plain not in known:
        problem = f"auto_map runs the model's own code {name!r}, which is not supported"
        if known:
            problem += f", only {', '.join(sorted(known))}"
        raise CheckpointError(f"{path}: {problem}")
    return plain


def no_windows(path: Path, data: Any) -> None:
    """Refuse layers with a window, in a family whose published models have none.

    Raises CheckpointError.
    """
    only(path, data, "use_sliding_window", False, False)
    layers = data.get("layer_types") or []
    kinds = layers if isinstance(layers, list) else [layers]
    if others := {str(kind) for kind in kinds} - {"full_attention"}:
        raise CheckpointError(
            f"{path}: layer_types {', '.join(sorted(others))} is not supported, only full_attention"
        )


def causal(path: Path, data: Any) -> bool:
    """Return `is_causal`, which is true where it is missing. Raises CheckpointError."""
    only(path, data, "use_bidirectional_attention", None, None)
    return value(path, {"is_causal": True, **data}, "is_causal", bool)


def rotation(
    path: Path, data: Any, layers: str | None = None, theta: str = "rope_theta"
) -> Rotation:
    """Read the rotation in the spelling of transformers 4 or 5. Raises CheckpointError.

    `layers` is the kind of layers to which it belongs, if the model has two kinds. `theta` names
    its base in transformers 4.
    """
    if data.get("partial_rotary_factor") is not None:
        only(path, data, "partial_rotary_factor", 1.0, 1.0)
    new, old = data.get("rope_parameters"), data.get("rope_scaling")
    if new is not None and layers is not None:
        new = new.get(layers) if isinstance(new, dict) else new
        if new is None:
            raise CheckpointError(f"{path}: rope_parameters has nothing for {layers}")
    if new is not None and old is not None:
        raise CheckpointError(
            f"{path}: there are both rope_parameters and rope_scaling: remove the wrong one"
        )
    if new is None:
        scaling = old if theta == "rope_theta" else None
        return Rotation(above_zero(path, data, theta), _scaling(path, scaling or {}))
    if not isinstance(new, dict):
        raise CheckpointError(f"{path}: rope_parameters must be an object, not {new!r}")
    base = above_zero(path, {theta: new.get("rope_theta", data.get(theta))}, theta)
    if data.get(theta) is not None and data[theta] != base:
        raise CheckpointError(f"{path}: {theta} {data[theta]} differs from rope_parameters, {base}")
    return Rotation(base, _scaling(path, new))


def _scaling(path: Path, data: Any) -> float | Llama3Scaling | None:
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: rope_scaling must be an object, not {data!r}")
    kinds = [data[key] for key in ("rope_type", "type") if key in data] or ["default"]
    kind = str(kinds[0])
    if len(set(map(str, kinds))) > 1 or kind not in _TYPES:
        raise CheckpointError(
            f"{path}: rope_type {' and '.join(map(repr, kinds))} is not supported, only"
            f" {', '.join(_TYPES)}"
        )
    if unknown := sorted(data.keys() - {*_KEYS, *_TYPES[kind]}):
        raise CheckpointError(
            f"{path}: {', '.join(unknown)} of rope_type {kind!r} is not supported"
        )
    if kind == "default":
        return None
    factor = above_zero(path, data, "factor")
    if kind == "linear":
        return factor
    low = above_zero(path, data, "low_freq_factor")
    high = above_zero(path, data, "high_freq_factor")
    if low >= high:
        raise CheckpointError(
            f"{path}: low_freq_factor {low} must be below high_freq_factor {high}"
        )
    window = positive(path, data, "original_max_position_embeddings")
    return Llama3Scaling(factor, low, high, window)
