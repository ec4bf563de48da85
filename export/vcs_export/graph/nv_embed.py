"""NV-Embed: a decoder whose tokens attend to trained vectors (latents), a gated layer and a mean.

Three rewrites change no result beyond rounding. `tests/lib/support/numpy_nv_embed.py` has the
published formula.

- The latents are constants, and so are the keys and values computed from them. They fold into the
  matrices beside them: per head `A = K Wq / sqrt(size)`, `B = Wo V^T`. A product from the hidden
  size to heads times latents, a softmax per head, and a product back remain.
- The last linear layer comes after the mean, once per text instead of once per token, because both
  are linear.
- Products take weights as stored, `(out, in)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.nv_embed import (
    CROSS_PREFIX,
    DECODER_PREFIX,
    GATED_PREFIX,
    GATED_WIDTH,
    LATENT_PREFIX,
    LatentConfig,
    NvEmbedCheckpoint,
)
from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.attention_layouts import Layout
from vcs_export.graph.decoder_model import DecoderModel, layer_norm
from vcs_export.graph.pooling import unit_length
from vcs_export.graph.streamed import FLOAT

_EPSILON = 1e-5
_ROWS = 256
_FOLDED = (
    "norm_context.weight",
    "norm_context.bias",
    "fn.to_q.weight",
    "fn.to_kv.weight",
    "fn.to_out.weight",
)

Array = NDArray[np.float32]


def nv_embed_model(opened: NvEmbedCheckpoint) -> DecoderModel:
    """Return the model of an opened NV-Embed checkpoint."""

    @cache
    def folded() -> tuple[Array, Array]:
        return fold(opened.latent, opened.tensors)

    def head(layout: Layout, hidden: ir.Value) -> ir.Value:
        return latent_pooling(layout, opened.latent, opened.tensors, folded(), hidden)

    dimension = opened.decoder.hidden_size
    return DecoderModel(
        opened.folder, opened.decoder, opened.tensors, DECODER_PREFIX, dimension, head
    )


def latent_pooling(
    layout: Layout,
    config: LatentConfig,
    tensors: Mapping[str, StoredTensor],
    folded: tuple[Array, Array],
    hidden: ir.Value,
) -> ir.Value:
    """Return text vectors, float32 `(batch, hidden)`, for the decoder output `(tokens, hidden)`."""
    graph = layout.graph
    heads, latents = config.num_cross_heads, config.num_latents_value
    into = graph.array(f"{CROSS_PREFIX}folded.into", folded[0], graph.compute)
    back = graph.array(f"{CROSS_PREFIX}folded.back", folded[1], graph.compute)
    # The folded tensors count as used for the progress bar.
    graph.used(tensors[f"{LATENT_PREFIX}latents"].nbytes)
    for name in _FOLDED:
        graph.used(tensors[f"{CROSS_PREFIX}{name}"].nbytes)

    # Attention to the latents, and the residual.
    normed = graph.computed(layer_norm(graph, tensors, f"{CROSS_PREFIX}norm", hidden, _EPSILON))
    scores = graph.exact(graph.op("Gemm", normed, into, transB=1))
    by_head = graph.op("Reshape", scores, graph.ints(-1, heads, latents))
    weights = graph.op("Softmax", by_head, axis=-1)
    flat = graph.op("Reshape", weights, graph.ints(-1, heads * latents))
    seen = graph.op("Gemm", graph.computed(flat), back, transB=1)
    y = layout.add(hidden, seen)

    # The gated layer. It is eight times as wide as the model, so that all of it at once would need
    # the most memory: it is computed and averaged in parts.
    normed = graph.computed(layer_norm(graph, tensors, f"{GATED_PREFIX}norm", y, _EPSILON))
    weight = tensors[f"{GATED_PREFIX}fn.net.0.weight"]
    bias = tensors[f"{GATED_PREFIX}fn.net.0.bias"]
    width, wide = config.hidden_dim, GATED_WIDTH * config.hidden_dim

    def part(start: int) -> ir.Value:
        stop = start + width
        return graph.linear(normed, weight.part(start, stop), bias.part(start, stop))

    means = []
    for start in range(0, wide, width):
        # The first half of the layer is the value, the second half the gate.
        value, gate = part(start), part(wide + start)
        means.append(layout.mean(graph.op("Mul", value, graph.op("Gelu", gate)), graph.compute))

    # The last linear layer, after the mean.
    out = graph.linear(
        graph.op("Concat", *means, axis=1),
        tensors[f"{GATED_PREFIX}fn.net.2.weight"],
        tensors[f"{GATED_PREFIX}fn.net.2.bias"],
        exact=True,
    )
    return unit_length(graph, graph.op("Add", out, layout.mean(y, FLOAT)))


def fold(config: LatentConfig, tensors: Mapping[str, StoredTensor]) -> tuple[Array, Array]:
    """Fold the latents into two matrices.

    Their shapes are `(heads * latents, hidden)` and `(hidden, heads * latents)`.
    """
    heads, size, count = config.num_cross_heads, config.cross_dim_head, config.num_latents_value
    # Normalise the latents.
    latents = tensors[f"{LATENT_PREFIX}latents"].rows().astype(np.float64)
    latents -= latents.mean(axis=1, keepdims=True)
    latents /= np.sqrt((latents**2).mean(axis=1, keepdims=True) + _EPSILON)
    scale = tensors[f"{CROSS_PREFIX}norm_context.weight"].rows()
    shift = tensors[f"{CROSS_PREFIX}norm_context.bias"].rows()
    context = (latents * scale + shift).astype(np.float32)

    # Fold keys into the matrix of queries, and compute values. `to_kv` has all keys first.
    to_q = tensors[f"{CROSS_PREFIX}fn.to_q.weight"]
    to_kv = tensors[f"{CROSS_PREFIX}fn.to_kv.weight"]
    into = np.empty((heads * count, config.hidden_dim), np.float32)
    values = np.empty((heads, count, size), np.float32)
    for head in range(heads):
        first, last = head * size, (head + 1) * size
        key = context @ to_kv.rows(first, last).T
        values[head] = context @ to_kv.rows(heads * size + first, heads * size + last).T
        query = to_q.rows(first, last)
        into[head * count : (head + 1) * count] = key @ query / np.float32(math.sqrt(size))

    # Fold values into the output matrix, a block of its rows at a time.
    to_out = tensors[f"{CROSS_PREFIX}fn.to_out.weight"]
    back = np.empty((config.hidden_dim, heads * count), np.float32)
    for start in range(0, config.hidden_dim, _ROWS):
        part = slice(start, min(start + _ROWS, config.hidden_dim))
        rows = to_out.rows(part.start, part.stop).reshape(-1, heads, size)
        for head in range(heads):
            back[part, head * count : (head + 1) * count] = rows[:, head] @ values[head].T
    return into, back
