"""Small random decoders of any settings, for tests of single parts of the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.checkpoints.files import write_safetensors
from support.numpy_decoder import Settings, decode, rotation_frequencies
from support.safetensors_files import StoredTensors
from vcs_export.checkpoint.decoder import (
    DecoderConfig,
    Llama3Scaling,
    LocalAttention,
    Rotation,
    decoder_shapes,
)
from vcs_export.checkpoint.safetensors_reader import open_shards
from vcs_export.graph.decoder_model import DecoderModel
from vcs_export.graph.pooling import unit_length
from vcs_export.graph.streamed import FLOAT

VOCABULARY = 90
LLAMA3 = Llama3Scaling(8.0, 1.0, 4.0, 64)
_WINDOWS = LocalAttention((True, False, True), 5, Rotation(100.0))
PARTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"causal": True},
    "rotation by Llama 3": {"rope_scaling": LLAMA3},
    "linear rotation": {"rope_scaling": 3.0},
    "windows": {"local": _WINDOWS},
    "causal windows": {"local": _WINDOWS, "causal": True},
    "windows with the rotation of all": {
        "local": LocalAttention((False, True, True), 3, Rotation(10000.0))
    },
    "biases": {"qkv_bias": True},
    "norms of heads": {"qk_norm": True},
    "GELU": {"activation": "gelu_tanh"},
    "four norms": {"sandwich": True},
    "offset of norms": {"norm_offset": 1.0},
    "scale of embeddings": {"embedding_scale": 1.7},
    "scale of attention": {"attention_scale": 0.9},
}
GEMMA = {
    name: value
    for part in (
        "windows",
        "norms of heads",
        "GELU",
        "four norms",
        "offset of norms",
        "scale of embeddings",
    )
    for name, value in PARTS[part].items()
} | {"attention_scale": 0.3, "rope_scaling": 2.0, "num_key_value_heads": 1}
"""All that Gemma 3 has."""


@dataclass(frozen=True)
class RandomDecoder:
    """A decoder whose tensors are in a file of `folder`."""

    folder: Path
    config: DecoderConfig

    def model(self, pooling: str) -> DecoderModel:
        """The model with "mean" or "last" pooling."""
        shapes = decoder_shapes(self.config, "")
        return DecoderModel(
            folder=self.folder,
            config=self.config,
            tensors=open_shards(self.folder, shapes),
            prefix="",
            dimension=self.config.hidden_size,
            head=lambda layout, hidden: unit_length(
                layout.graph, layout.mean(hidden, FLOAT) if pooling == "mean" else hidden
            ),
            only_last=pooling == "last",
        )

    def vectors(
        self, rows: list[list[int]], pooling: str, skip: int = 0, **changed: Any
    ) -> NDArray[Any]:
        """The unit vectors by NumPy, by other settings than its own if there are `changed` ones."""
        config = DecoderConfig(**{**vars(self.config), **changed})
        tensors = StoredTensors(self.folder)
        states = [decode(tensors, "", _settings(config), row) for row in rows]
        vectors = np.array(
            [state[-1] if pooling == "last" else state[skip:].mean(axis=0) for state in states]
        )
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_random_decoder(folder: Path, dtype: str = "F32", **changed: Any) -> RandomDecoder:
    """Write random tensors for some settings into `folder` and return them."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "intermediate_size": 40,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 64,
    }
    config = DecoderConfig(
        **{**sizes, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "causal": False, **changed}
    )
    rng = np.random.default_rng(0)

    def tensor(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        spread, centre = 1.2 / math.sqrt(shape[-1]), 0.0
        if name.endswith("norm.weight"):
            spread, centre = 0.2, 1 - config.norm_offset
        elif "embed" in name or name.endswith("bias"):
            spread = 1.0
        return (centre + spread * rng.standard_normal(shape)).astype(np.float32)

    tensors = {name: tensor(name, shape) for name, shape in decoder_shapes(config, "").items()}
    write_safetensors(folder / "model.safetensors", tensors, dtype)
    return RandomDecoder(folder, config)


def random_rows(*lengths: int) -> list[list[int]]:
    """Token ids of texts of so many tokens."""
    rng = np.random.default_rng(1)
    return [rng.integers(0, VOCABULARY, length).tolist() for length in lengths]


def _settings(config: DecoderConfig) -> Settings:
    local = config.local.layers if config.local else (False,) * config.num_hidden_layers
    near = config.local.rotation if config.local else config.rotation
    return Settings(
        heads=config.num_attention_heads,
        groups=config.num_key_value_heads,
        head_size=config.head_dim,
        epsilon=config.rms_norm_eps,
        causal=config.causal,
        windows=tuple(
            config.local.reach + 1 if config.local and here else math.inf for here in local
        ),
        frequencies=tuple(
            _turns(near if here else config.rotation, config.head_dim) for here in local
        ),
        attention_scale=config.attention_scale or config.head_dim**-0.5,
        embedding_scale=config.embedding_scale,
        norm_offset=config.norm_offset,
        activation=config.activation,
        biases=config.qkv_bias,
        qk_norms=config.qk_norm,
        sandwich=config.sandwich,
    )


def _turns(rotation: Rotation, size: int) -> NDArray[np.float64]:
    scaling: Mapping[str, Any] = {}
    if isinstance(rotation.scaling, Llama3Scaling):
        scaling = {"rope_type": "llama3", **vars(rotation.scaling)}
    elif rotation.scaling is not None:
        scaling = {"rope_type": "linear", "factor": rotation.scaling}
    return rotation_frequencies(size, rotation.theta, scaling)
