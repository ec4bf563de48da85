"""NV-Embed: a decoder whose tokens attend to trained vectors (latents), a gated layer and a mean.

Three rewrites change no result beyond rounding. `tests/lib/support/numpy_nv_embed.py` has the
formula as it is published.

- The latents are constants, and so are the keys and values that are computed from them. They fold
  into the matrices beside them: per head `A = K Wq / sqrt(size)`, `B = Wo V^T`. A product from the
  hidden size to heads times latents, a softmax per head, and a product back remain.
- The last linear layer comes after the mean, once a text instead of once a token, because both are
  linear.
- Products take weights as they are stored, `(out, in)`.
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
    into, back = (
        graph.array(f"{CROSS_PREFIX}folded.{name}", matrix, graph.compute)
        for name, matrix in zip(("into", "back"), folded, strict=True)
    )
    for name in (f"{LATENT_PREFIX}latents", *(f"{CROSS_PREFIX}{source}" for source in _FOLDED)):
        graph.used(tensors[name].nbytes)
    normed = graph.computed(layer_norm(graph, tensors, f"{CROSS_PREFIX}norm", hidden, _EPSILON))
    scores = graph.exact(graph.op("Gemm", normed, into, transB=1))
    by_head = graph.op("Reshape", scores, graph.ints(-1, heads, latents))
    weights = graph.op(
        "Reshape", graph.op("Softmax", by_head, axis=-1), graph.ints(-1, heads * latents)
    )
    seen = graph.op("Gemm", graph.computed(weights), back, transB=1)
    y = layout.add(hidden, seen)
    normed = graph.computed(layer_norm(graph, tensors, f"{GATED_PREFIX}norm", y, _EPSILON))
    weight, bias = (tensors[f"{GATED_PREFIX}fn.net.0.{part}"] for part in ("weight", "bias"))
    width, wide = config.hidden_dim, GATED_WIDTH * config.hidden_dim
    means = []
    # The layer is eight times as wide as the model, so that all of it at once would need the most
    # memory.
    for start in range(0, wide, width):
        # Its first half is the value, the second the gate.
        value, gate = (
            graph.linear(normed, weight.part(at, at + width), bias.part(at, at + width))
            for at in (start, wide + start)
        )
        means.append(layout.mean(graph.op("Mul", value, graph.op("Gelu", gate)), graph.compute))
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
    latents = tensors[f"{LATENT_PREFIX}latents"].rows().astype(np.float64)
    latents -= latents.mean(axis=1, keepdims=True)
    latents /= np.sqrt((latents**2).mean(axis=1, keepdims=True) + _EPSILON)
    scale, shift = (
        tensors[f"{CROSS_PREFIX}norm_context.{part}"].rows() for part in ("weight", "bias")
    )
    context = (latents * scale + shift).astype(np.float32)
    to_q, to_kv, to_out = (
        tensors[f"{CROSS_PREFIX}fn.{name}.weight"] for name in ("to_q", "to_kv", "to_out")
    )
    into = np.empty((heads * count, config.hidden_dim), np.float32)
    back = np.empty((config.hidden_dim, heads * count), np.float32)
    values = np.empty((heads, count, size), np.float32)
    for head in range(heads):
        first, last = head * size, (head + 1) * size
        key = context @ to_kv.rows(first, last).T
        values[head] = context @ to_kv.rows(heads * size + first, heads * size + last).T
        into[head * count : (head + 1) * count] = (
            key @ to_q.rows(first, last) / np.float32(math.sqrt(size))
        )
    for start in range(0, config.hidden_dim, _ROWS):
        part = slice(start, min(start + _ROWS, config.hidden_dim))
        rows = to_out.rows(part.start, part.stop).reshape(-1, heads, size)
        for head in range(heads):
            back[part, head * count : (head + 1) * count] = rows[:, head] @ values[head].T
    return into, back
