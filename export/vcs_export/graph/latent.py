"""NV-Embed's pooling: each token looks at trained vectors (latents), a gated layer, the mean of a text.

Three rewrites that change no result beyond rounding (the formula as published is in
`tests/lib/support/numpy_nv_embed.py`):

- The latents are constants, so the keys and values that are computed from them are, and they fold into the
  matrices beside them: per head `A = K Wq / sqrt(size)`, `B = Wo V^T`. What remains is a product from the
  hidden size to heads times latents, a softmax per head, and a product back.
- The last linear layer comes after the mean, once a text and not once a token, because both are linear.
- Products take weights as they are stored, `(out, in)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.attention_layouts import Layout
from vcs_export.graph.decoder import layer_norm
from vcs_export.graph.pooling import unit_length

PREFIX = "latent_attention_model."
_CROSS = f"{PREFIX}cross_attend_blocks.0."
_GATED = f"{PREFIX}cross_attend_blocks.1."
_EPSILON = 1e-5
# The gated layer is this many times as wide as the hidden states; its code has no setting for it.
_WIDER = 4
_ROWS = 256
_FOLDED = (
    "norm_context.weight",
    "norm_context.bias",
    "fn.to_q.weight",
    "fn.to_kv.weight",
    "fn.to_out.weight",
)

Array = NDArray[np.float32]


@dataclass(frozen=True)
class LatentConfig:
    """The settings of the pooling, with the names that `latent_attention_config` uses."""

    num_latents_value: int
    num_cross_heads: int
    cross_dim_head: int
    hidden_dim: int


def latent_shapes(config: LatentConfig) -> dict[str, tuple[int, ...]]:
    """The tensors of the pooling and their shapes."""
    hidden, joined = config.hidden_dim, config.num_cross_heads * config.cross_dim_head
    wide = _WIDER * hidden
    return {
        f"{PREFIX}latents": (config.num_latents_value, hidden),
        f"{_CROSS}norm.weight": (hidden,),
        f"{_CROSS}norm.bias": (hidden,),
        f"{_CROSS}norm_context.weight": (hidden,),
        f"{_CROSS}norm_context.bias": (hidden,),
        f"{_CROSS}fn.to_q.weight": (joined, hidden),
        f"{_CROSS}fn.to_kv.weight": (2 * joined, hidden),
        f"{_CROSS}fn.to_out.weight": (hidden, joined),
        f"{_GATED}norm.weight": (hidden,),
        f"{_GATED}norm.bias": (hidden,),
        f"{_GATED}fn.net.0.weight": (2 * wide, hidden),
        f"{_GATED}fn.net.0.bias": (2 * wide,),
        f"{_GATED}fn.net.2.weight": (hidden, wide),
        f"{_GATED}fn.net.2.bias": (hidden,),
    }


def latent_pooling(
    layout: Layout, config: LatentConfig, tensors: Mapping[str, StoredTensor], hidden: ir.Value
) -> ir.Value:
    """One unit vector a text, `(batch, hidden)`, from the hidden states `(tokens, hidden)`; all float32."""
    graph = layout.graph
    heads, latents = config.num_cross_heads, config.num_latents_value
    into, back = (
        graph.array(f"{_CROSS}folded.{name}", matrix, graph.compute)
        for name, matrix in zip(("into", "back"), fold(config, tensors), strict=True)
    )
    for name in (f"{PREFIX}latents", *(f"{_CROSS}{folded}" for folded in _FOLDED)):
        graph.used(tensors[name].nbytes)
    normed = graph.computed(layer_norm(graph, tensors, f"{_CROSS}norm", hidden, _EPSILON))
    scores = graph.exact(graph.op("Gemm", normed, into, transB=1))
    by_head = graph.op("Reshape", scores, graph.ints(-1, heads, latents))
    weights = graph.op("Reshape", graph.op("Softmax", by_head, axis=-1), graph.ints(-1, heads * latents))
    seen = graph.exact(graph.op("Gemm", graph.computed(weights), back, transB=1))
    y = graph.op("Add", seen, hidden)
    normed = graph.computed(layer_norm(graph, tensors, f"{_GATED}norm", y, _EPSILON))
    both = graph.linear(normed, tensors[f"{_GATED}fn.net.0.weight"], tensors[f"{_GATED}fn.net.0.bias"])
    wide = _WIDER * config.hidden_dim
    # The first half is the value, the second the gate.
    value = graph.op("Slice", both, graph.ints(0), graph.ints(wide), graph.ints(-1))
    gate = graph.op("Slice", both, graph.ints(wide), graph.ints(2 * wide), graph.ints(-1))
    inner = graph.exact(graph.op("Mul", value, graph.op("Gelu", gate)))
    out = graph.linear(
        layout.mean(inner),
        tensors[f"{_GATED}fn.net.2.weight"],
        tensors[f"{_GATED}fn.net.2.bias"],
        exact=True,
    )
    return unit_length(graph, graph.op("Add", out, layout.mean(y)))


def fold(config: LatentConfig, tensors: Mapping[str, StoredTensor]) -> tuple[Array, Array]:
    """A `(heads * latents, hidden)` and B `(hidden, heads * latents)`, both as a linear layer stores them."""
    heads, size, count = config.num_cross_heads, config.cross_dim_head, config.num_latents_value
    latents = tensors[f"{PREFIX}latents"].rows().astype(np.float64)
    latents -= latents.mean(axis=1, keepdims=True)
    latents /= np.sqrt((latents**2).mean(axis=1, keepdims=True) + _EPSILON)
    scale, shift = (tensors[f"{_CROSS}norm_context.{part}"].rows() for part in ("weight", "bias"))
    context = (latents * scale + shift).astype(np.float32)
    to_q, to_kv, to_out = (tensors[f"{_CROSS}fn.{name}.weight"] for name in ("to_q", "to_kv", "to_out"))
    into = np.empty((heads * count, config.hidden_dim), np.float32)
    back = np.empty((config.hidden_dim, heads * count), np.float32)
    values = np.empty((heads, count, size), np.float32)
    for head in range(heads):
        first, last = head * size, (head + 1) * size
        key = context @ to_kv.rows(first, last).T
        values[head] = context @ to_kv.rows(heads * size + first, heads * size + last).T
        into[head * count : (head + 1) * count] = key @ to_q.rows(first, last) / np.float32(math.sqrt(size))
    for start in range(0, config.hidden_dim, _ROWS):
        part = slice(start, min(start + _ROWS, config.hidden_dim))
        rows = to_out.rows(part.start, part.stop).reshape(-1, heads, size)
        for head in range(heads):
            back[part, head * count : (head + 1) * count] = rows[:, head] @ values[head].T
    return into, back
