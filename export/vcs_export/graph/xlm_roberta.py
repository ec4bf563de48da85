"""SaT as an ONNX graph: token ids in, the logit of a boundary after each token out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.xlm_roberta import PAD, SatCheckpoint
from vcs_export.graph.builder import GraphBuilder, StoredWeights
from vcs_export.graph.transformer import INPUTS, OPSET, attention_bias, embeddings, layers

OUTPUT = "logits"


def write_sat(
    checkpoint: SatCheckpoint, model: Path, weights: Path, precision: str
) -> StoredWeights:
    """Write the graph, and its weights beside it.

    The inputs `input_ids` and `attention_mask` are int64 `(batch, tokens)`, with at most
    `max_tokens` tokens. The output `logits` is float32 `(batch, tokens, 1)`, for label 0.
    """
    graph = GraphBuilder(OPSET, precision)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    x = embeddings(graph, checkpoint, ids, positions(graph, ids))
    bias = attention_bias(graph, _visible(graph, mask, checkpoint.config.lookahead_per_layer))
    x = layers(graph, checkpoint, x, bias)
    logits = graph.linear("classifier", x, *label(checkpoint))
    return graph.save(logits, OUTPUT, ("batch", "tokens", 1), model, weights)


def label(checkpoint: SatCheckpoint) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the classifier's weight and bias for label 0.

    The other labels, for punctuation marks, are not used.
    """
    weight = checkpoint.head_tensor("classifier.weight")
    bias = checkpoint.head_tensor("classifier.bias")
    return weight[:1], bias[:1]


def positions(graph: GraphBuilder, ids: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    """Add each token's position, counted from the position of pads, which all have the same.

    A text may spell out `<pad>`, so that pads may stand before other tokens, which they do not
    count for.
    """
    pad = graph.int_scalar(PAD)
    other = graph.op("Not", graph.op("Equal", ids, pad))
    counted = graph.op("Cast", other, to=int(ir.DataType.INT64))
    if mask is not None:
        counted = graph.op("Mul", counted, mask)
    # Positions are summed in float32 in every precision, because TensorRT cannot sum integers.
    floats = graph.op("Cast", counted, to=int(ir.DataType.FLOAT))
    places = graph.op("CumSum", floats, graph.int_scalar(1))
    count = graph.op("Mul", graph.op("Cast", places, to=int(ir.DataType.INT64)), counted)
    return graph.op("Add", count, pad)


def _visible(graph: GraphBuilder, mask: ir.Value, lookahead: int | None) -> ir.Value:
    """Return 1 where a token (row) sees a key (column): `(batch, 1, 1 or tokens, tokens)`."""
    keys = graph.op("Unsqueeze", graph.op("Cast", mask, to=graph.float_type), graph.ints(1, 2))
    if lookahead is None:
        return keys
    # Ones on and below the diagonal that is `lookahead` keys to the right.
    tokens = graph.op("Shape", mask, start=1, end=2)
    square = graph.op("Expand", graph.scalar(1.0), graph.op("Concat", tokens, tokens, axis=0))
    return graph.op("Mul", keys, graph.op("Trilu", square, graph.int_scalar(lookahead), upper=0))
