"""Settings and tensors that the checkpoints of decoders share: Mistral, Llama and the like."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vcs_export.checkpoint.settings import SIZES, above_zero, only, positive, positives
from vcs_export.checkpoint.transformer import head_size
from vcs_export.errors import CheckpointError

Activation = Literal["silu", "gelu_tanh"]

# The setting that names an activation, and the name in it.
_ACTIVATIONS: dict[Activation, tuple[str, str]] = {
    "silu": ("hidden_act", "silu"),
    "gelu_tanh": ("hidden_activation", "gelu_pytorch_tanh"),
}


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's change of the frequencies of rotation, with the names that `rope_scaling` uses.

    Frequencies with more than `high_freq_factor` turns in the original window stay. Frequencies
    with fewer than `low_freq_factor` are divided by `factor`. Between them is a straight line.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class Rotation:
    """How queries and keys are rotated by position."""

    theta: float  # base of the frequencies
    scaling: float | Llama3Scaling | None = None  # a number divides all frequencies ("linear")


@dataclass(frozen=True)
class LocalAttention:
    """The layers in which a token sees only near tokens."""

    layers: tuple[bool, ...]  # for each layer, whether it has a window
    # The largest distance at which a token sees another: on both sides, or before it if causal.
    reach: int
    rotation: Rotation


@dataclass(frozen=True)
class DecoderConfig:
    """Settings of a decoder's graph, the first ones under their names in `config.json`."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    causal: bool  # a token sees only the tokens before it
    rope_scaling: float | Llama3Scaling | None = None
    local: LocalAttention | None = None  # None: in every layer a token sees the whole text
    qkv_bias: bool = False
    qk_norm: bool = False  # each head of queries and keys is normalised before rotation
    activation: Activation = "silu"  # of the gate
    # Norms after attention and after the feed-forward layer too, before the sum.
    sandwich: bool = False
    norm_offset: float = 0.0  # added to the weights of all norms
    embedding_scale: float = 1.0
    attention_scale: float | None = None  # of scores; None: 1 / sqrt(head_dim)
    fp16: bool = True  # the numbers between layers fit into float16

    @property
    def rotation(self) -> Rotation:
        """Rotation in the layers without a window."""
        return Rotation(self.rope_theta, self.rope_scaling)


def decoder_config(
    path: Path, data: Any, rotation: Rotation, *, activation: Activation = "silu", **family: Any
) -> DecoderConfig:
    """Read and check the settings that all decoders share. Raises CheckpointError.

    `family` are further fields of `DecoderConfig`.
    """
    key, name = _ACTIVATIONS[activation]
    for setting, supported in ((key, name), ("attention_bias", False), ("mlp_bias", False)):
        only(path, data, setting, supported, supported)
    counts: dict[str, Any] = positives(path, data, *SIZES, "num_key_value_heads")
    heads = counts["num_attention_heads"]
    if data.get("head_dim") is None:
        size = head_size(path, counts)
    else:
        size = positive(path, data, "head_dim")
    if heads % counts["num_key_value_heads"]:
        raise CheckpointError(
            f"{path}: num_attention_heads {heads} is not a multiple of "
            f"num_key_value_heads {counts['num_key_value_heads']}"
        )
    if size % 2:
        raise CheckpointError(f"{path}: heads of size {size} cannot be rotated in halves")
    return DecoderConfig(
        **counts,
        head_dim=size,
        rms_norm_eps=above_zero(path, data, "rms_norm_eps"),
        rope_theta=rotation.theta,
        rope_scaling=rotation.scaling,
        activation=activation,
        **family,
    )


def decoder_shapes(config: DecoderConfig, prefix: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a decoder, by its name after `prefix`."""
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries = config.num_attention_heads * head
    keys = config.num_key_value_heads * head
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.qkv_bias:
        layer["self_attn.q_proj.bias"] = (queries,)
        layer["self_attn.k_proj.bias"] = (keys,)
        layer["self_attn.v_proj.bias"] = (keys,)
    if config.qk_norm:
        layer["self_attn.q_norm.weight"] = (head,)
        layer["self_attn.k_norm.weight"] = (head,)
    if config.sandwich:
        # In such models `post_attention_layernorm` normalises the output of attention.
        layer["pre_feedforward_layernorm.weight"] = (hidden,)
        layer["post_feedforward_layernorm.weight"] = (hidden,)
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config.vocab_size, hidden)}
    for number in range(config.num_hidden_layers):
        shapes |= {f"layers.{number}.{name}": shape for name, shape in layer.items()}
    shapes["norm.weight"] = (hidden,)
    return {prefix + name: shape for name, shape in shapes.items()}
