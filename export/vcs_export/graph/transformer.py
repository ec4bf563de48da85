"""Layers shared by BERT, XLM-RoBERTa and similar encoders: embeddings, attention, feed-forward.

Only standard operators of opset 17 are used. ONNX Runtime's optimiser recognises their pattern and
turns it into fused kernels on the CPU (the script `graph_forms` at 07564bf). Other runtimes run
the pattern unchanged.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.transformer import Checkpoint, TransformerConfig
from vcs_export.graph.builder import GraphBuilder
from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS, PADDING_STEP

OPSET = 17
INPUTS = EMBEDDER_INPUTS["padded"]
"""Inputs of an encoder, int64 `(batch, tokens)`. A SaT model has the same."""

AnyCheckpoint = Checkpoint[TransformerConfig]
WORDS, POSITIONS = "embeddings.word_embeddings.weight", "embeddings.position_and_type"


def embeddings(
    graph: GraphBuilder, checkpoint: AnyCheckpoint, ids: ir.Value, positions: ir.Value | None = None
) -> ir.Value:
    """Add the normalised sum of word, position and type 0 vectors, `(batch, tokens, hidden)`.

    `positions` are rows of the position table, `(batch, tokens)`; None stands for 0, 1, 2, ...
    """
    words = graph.rows(WORDS, checkpoint.tensor(WORDS), ids)
    table = graph.weight(POSITIONS, position_rows(checkpoint, positions is None))
    if positions is None:
        tokens = graph.op("Shape", ids, start=1, end=2)
        places = graph.op("Slice", table, graph.ints(0), tokens, graph.ints(0))
    else:
        places = graph.op("Gather", table, positions)
    x = graph.op("Add", words, places)
    return layer_norm(graph, checkpoint, "embeddings.LayerNorm", x)


def position_rows(checkpoint: AnyCheckpoint, from_zero: bool) -> NDArray[np.float32]:
    """Return the position vectors, each with the vector of token type 0 added.

    Every token has type 0, so one table serves for both.
    """
    rows = checkpoint.tensor("embeddings.position_embeddings.weight")
    if checkpoint.config.type_vocab_size:
        rows = rows + checkpoint.tensor("embeddings.token_type_embeddings.weight")[0]
    if not from_zero:
        return rows
    # The longest text may be padded beyond the last position. These rows are masked.
    return np.pad(rows, ((0, -len(rows) % PADDING_STEP), (0, 0)))


def layers(
    graph: GraphBuilder,
    checkpoint: AnyCheckpoint,
    x: ir.Value,
    bias: ir.Value,
    count: int | None = None,
) -> ir.Value:
    """Add the first `count` layers, or all. `bias` is added to the scores of attention."""
    for layer in range(count or checkpoint.config.num_hidden_layers):
        x = attention(graph, checkpoint, f"encoder.layer.{layer}.", x, bias)
        x = feed_forward(graph, checkpoint, f"encoder.layer.{layer}.", x)
    return x


def attention_bias(graph: GraphBuilder, visible: ir.Value) -> ir.Value:
    """Return the attention bias: 0 where `visible` is 1, and the lowest number where it is 0."""
    hidden = graph.op("Sub", graph.scalar(1.0), visible)
    return graph.op("Mul", hidden, graph.scalar(graph.lowest))


def attention(
    graph: GraphBuilder, checkpoint: AnyCheckpoint, prefix: str, x: ir.Value, bias: ir.Value
) -> ir.Value:
    """Add self-attention with its residual and normalisation. `bias` is added to the scores."""
    heads = checkpoint.config.num_attention_heads
    size = checkpoint.config.hidden_size // heads

    def by_head(name: str, order: list[int]) -> ir.Value:
        projected = linear(graph, checkpoint, f"{prefix}attention.self.{name}", x)
        split = graph.op("Reshape", projected, graph.ints(0, 0, heads, size))
        return graph.op("Transpose", split, perm=order)

    query = by_head("query", [0, 2, 1, 3])
    key = by_head("key", [0, 2, 3, 1])
    value = by_head("value", [0, 2, 1, 3])
    seen = attended(graph, query, key, value, bias, heads, size)
    out = linear(graph, checkpoint, f"{prefix}attention.output.dense", seen)
    total = graph.op("Add", out, x)
    return layer_norm(graph, checkpoint, f"{prefix}attention.output.LayerNorm", total)


def attended(
    graph: GraphBuilder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    bias: ir.Value,
    heads: int,
    size: int,
) -> ir.Value:
    """Add the attention of all heads, and join their results: `(batch, tokens, heads * size)`.

    Query and value are `(batch, heads, tokens, size)`, the key is transposed: `(batch, heads, size,
    tokens)`.
    """
    products = graph.op("MatMul", query, key)
    scores = graph.op("Div", products, graph.scalar(float(np.sqrt(np.float32(size)))))
    weights = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    context = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return graph.op("Reshape", context, graph.ints(0, 0, heads * size))


def feed_forward(
    graph: GraphBuilder, checkpoint: AnyCheckpoint, prefix: str, x: ir.Value
) -> ir.Value:
    """Add the two dense layers around GELU, with their residual and normalisation."""
    inner = linear(graph, checkpoint, f"{prefix}intermediate.dense", x)
    out = linear(graph, checkpoint, f"{prefix}output.dense", gelu(graph, inner))
    return layer_norm(graph, checkpoint, f"{prefix}output.LayerNorm", graph.op("Add", out, x))


def gelu(graph: GraphBuilder, x: ir.Value) -> ir.Value:
    """Add the exact GELU as a pattern that ONNX Runtime's optimiser recognises.

    The operator Gelu exists only from opset 20 on.
    """
    erf = graph.op("Erf", graph.op("Div", x, graph.scalar(float(np.sqrt(2.0)))))
    # x (1 + erf(x / sqrt 2)) / 2
    twice = graph.op("Mul", x, graph.op("Add", erf, graph.scalar(1.0)))
    return graph.op("Mul", twice, graph.scalar(0.5))


def linear(graph: GraphBuilder, checkpoint: AnyCheckpoint, name: str, x: ir.Value) -> ir.Value:
    """Add the checkpoint's linear layer `name`."""
    weight, bias = checkpoint.tensor(f"{name}.weight"), checkpoint.tensor(f"{name}.bias")
    return graph.linear(name, x, weight, bias)


def layer_norm(graph: GraphBuilder, checkpoint: AnyCheckpoint, name: str, x: ir.Value) -> ir.Value:
    """Add the checkpoint's layer normalisation `name`."""
    weight, bias = checkpoint.tensor(f"{name}.weight"), checkpoint.tensor(f"{name}.bias")
    return graph.layer_norm(name, x, weight, bias, checkpoint.config.layer_norm_eps)
