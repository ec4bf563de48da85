"""The BERT encoder as an ONNX graph: token ids in, one unit vector a text out.

Only standard operators of opset 17 are used, in the pattern that ONNX Runtime's optimiser turns into its
fused kernels on the CPU (export/README.md has the measurements), and that other runtimes read as it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from vcs_export.checkpoint import BertCheckpoint
from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.pooling import mean_pooling, unit_length

OPSET = 17
INPUTS = ("input_ids", "attention_mask")
OUTPUT = "embedding"


def write_bert(checkpoint: BertCheckpoint, model: Path, weights: Path) -> None:
    """Write the encoder's graph to `model` and its weights to `weights`, in the same folder.

    Inputs `input_ids` and `attention_mask`: int64 `(batch, tokens)`, at most as many tokens as the model
    has positions. Output `embedding`: float32 `(batch, hidden)`, rows of unit length (a row whose mask is
    all zeros gives the zero vector). Token types are all 0. Raises OSError.
    """
    graph = GraphBuilder(OPSET)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    weight_of_token = graph.op("Cast", mask, to=int(ir.DataType.FLOAT))
    bias = _attention_bias(graph, weight_of_token)
    x = _embeddings(graph, checkpoint, ids)
    for layer in range(checkpoint.config.num_hidden_layers):
        x = _attention(graph, checkpoint, f"encoder.layer.{layer}.", x, bias)
        x = _feed_forward(graph, checkpoint, f"encoder.layer.{layer}.", x)
    embedding = unit_length(graph, mean_pooling(graph, x, weight_of_token))
    graph.save(embedding, OUTPUT, ("batch", checkpoint.config.hidden_size), model, weights)


def _embeddings(graph: GraphBuilder, checkpoint: BertCheckpoint, ids: ir.Value) -> ir.Value:
    words = graph.weight(
        "embeddings.word_embeddings.weight", checkpoint.tensor("embeddings.word_embeddings.weight")
    )
    # Every token has type 0 and some position: one table serves for both.
    table = graph.weight(
        "embeddings.position_and_type",
        checkpoint.tensor("embeddings.position_embeddings.weight")
        + checkpoint.tensor("embeddings.token_type_embeddings.weight")[0],
    )
    tokens = graph.op("Shape", ids, start=1, end=2)
    positions = graph.op("Slice", table, graph.ints(0), tokens, graph.ints(0))
    x = graph.op("Add", graph.op("Gather", words, ids), positions)
    return _layer_norm(graph, checkpoint, "embeddings.LayerNorm", x)


def _attention_bias(graph: GraphBuilder, mask: ir.Value) -> ir.Value:
    """What is added to the attention scores, `(batch, 1, 1, tokens)`: 0, or the lowest float."""
    masked = graph.op("Sub", graph.scalar(1.0), graph.op("Unsqueeze", mask, graph.ints(1, 2)))
    # Finite, so that a row without any token gives numbers and not NaN.
    return graph.op("Mul", masked, graph.scalar(float(np.finfo(np.float32).min)))


def _attention(
    graph: GraphBuilder, checkpoint: BertCheckpoint, prefix: str, x: ir.Value, bias: ir.Value
) -> ir.Value:
    heads = checkpoint.config.num_attention_heads
    size = checkpoint.config.hidden_size // heads

    def split(name: str, order: list[int]) -> ir.Value:
        projected = _linear(graph, checkpoint, f"{prefix}attention.self.{name}", x)
        return graph.op(
            "Transpose", graph.op("Reshape", projected, graph.ints(0, 0, heads, size)), perm=order
        )

    query, key, value = split("query", [0, 2, 1, 3]), split("key", [0, 2, 3, 1]), split("value", [0, 2, 1, 3])
    scores = graph.op("Div", graph.op("MatMul", query, key), graph.scalar(float(np.sqrt(np.float32(size)))))
    weights = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    context = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    joined = graph.op("Reshape", context, graph.ints(0, 0, heads * size))
    out = _linear(graph, checkpoint, f"{prefix}attention.output.dense", joined)
    return _layer_norm(graph, checkpoint, f"{prefix}attention.output.LayerNorm", graph.op("Add", out, x))


def _feed_forward(graph: GraphBuilder, checkpoint: BertCheckpoint, prefix: str, x: ir.Value) -> ir.Value:
    inner = _linear(graph, checkpoint, f"{prefix}intermediate.dense", x)
    # x (1 + erf(x / sqrt 2)) / 2, in the order that the optimiser recognises; Gelu itself came with opset 20.
    erf = graph.op("Erf", graph.op("Div", inner, graph.scalar(float(np.sqrt(2.0)))))
    gelu = graph.op("Mul", inner, graph.op("Add", erf, graph.scalar(1.0)))
    out = _linear(graph, checkpoint, f"{prefix}output.dense", graph.op("Mul", gelu, graph.scalar(0.5)))
    return _layer_norm(graph, checkpoint, f"{prefix}output.LayerNorm", graph.op("Add", out, x))


def _linear(graph: GraphBuilder, checkpoint: BertCheckpoint, name: str, x: ir.Value) -> ir.Value:
    return graph.linear(name, x, checkpoint.tensor(f"{name}.weight"), checkpoint.tensor(f"{name}.bias"))


def _layer_norm(graph: GraphBuilder, checkpoint: BertCheckpoint, name: str, x: ir.Value) -> ir.Value:
    weight, bias = checkpoint.tensor(f"{name}.weight"), checkpoint.tensor(f"{name}.bias")
    return graph.layer_norm(name, x, weight, bias, checkpoint.config.layer_norm_eps)
