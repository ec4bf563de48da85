"""The BERT encoder as an ONNX graph: token ids in, one unit vector a text out."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from vcs_export.checkpoint.bert import BertCheckpoint
from vcs_export.graph.builder import GraphBuilder, StoredWeights
from vcs_export.graph.pooling import mean_pooling, unit_length
from vcs_export.graph.transformer import INPUTS, OPSET, attention, attention_bias, embeddings, feed_forward

OUTPUT = "embedding"


def write_bert(checkpoint: BertCheckpoint, model: Path, weights: Path) -> StoredWeights:
    """Write the encoder's graph, and its weights beside it.

    The inputs `input_ids` and `attention_mask` are int64 `(batch, tokens)`, with at most as many tokens as
    the model has positions. The output `embedding` is float32 `(batch, hidden)`, rows of unit length; a row
    whose mask is all zeros gives the zero vector. Token types are all 0.
    """
    graph = GraphBuilder(OPSET)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    weight_of_token = graph.op("Cast", mask, to=int(ir.DataType.FLOAT))
    bias = attention_bias(graph, graph.op("Unsqueeze", weight_of_token, graph.ints(1, 2)))
    x = embeddings(graph, checkpoint, ids)
    for layer in range(checkpoint.config.num_hidden_layers):
        x = attention(graph, checkpoint, f"encoder.layer.{layer}.", x, bias)
        x = feed_forward(graph, checkpoint, f"encoder.layer.{layer}.", x)
    embedding = unit_length(graph, mean_pooling(graph, x, weight_of_token))
    return graph.save(embedding, OUTPUT, ("batch", checkpoint.config.hidden_size), model, weights)
