"""SaT as an ONNX graph: token ids in, for each token the logit of a boundary behind it out."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from vcs_export.checkpoint.xlm_roberta import PAD, SatCheckpoint
from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.transformer import (
    INPUTS,
    OPSET,
    attention,
    attention_bias,
    embeddings,
    feed_forward,
)

OUTPUT = "logits"


def write_sat(checkpoint: SatCheckpoint, model: Path, weights: Path, precision: str) -> None:
    """Write the graph to `model` and its weights to `weights`, in the same folder.

    Inputs `input_ids` and `attention_mask`: int64 `(batch, tokens)`, at most `max_tokens` tokens. Output
    `logits`: float32 `(batch, tokens, 1)`, label 0 alone. precision: as `GraphBuilder` takes it.
    Raises OSError.
    """
    graph = GraphBuilder(OPSET, precision)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    x = embeddings(graph, checkpoint, ids, positions(graph, ids))
    bias = attention_bias(graph, _visible(graph, mask, checkpoint.config.lookahead_per_layer))
    for layer in range(checkpoint.config.num_hidden_layers):
        x = attention(graph, checkpoint, f"encoder.layer.{layer}.", x, bias)
        x = feed_forward(graph, checkpoint, f"encoder.layer.{layer}.", x)
    # The other labels are punctuation marks that the models learned beside, and nobody asks for here.
    weight, shift = (checkpoint.head_tensor(f"classifier.{name}")[:1] for name in ("weight", "bias"))
    graph.save(graph.linear("classifier", x, weight, shift), OUTPUT, ("batch", "tokens", 1), model, weights)


def positions(graph: GraphBuilder, ids: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    """Each token's position `(batch, tokens)`: counted on from the pad's, which every pad has itself.

    A text may spell out `<pad>`, so pads are not only at the end, and they take no position from the others.
    mask: int64 `(batch, tokens)`; where it is 0, a token counts as a pad, whatever its id.
    """
    pad = graph.int_scalar(PAD)
    counted = graph.op("Cast", graph.op("Not", graph.op("Equal", ids, pad)), to=int(ir.DataType.INT64))
    if mask is not None:
        counted = graph.op("Mul", counted, mask)
    # Counted in float32, whatever the graph's precision: TensorRT sums no integers up.
    places = graph.op("CumSum", graph.op("Cast", counted, to=int(ir.DataType.FLOAT)), graph.int_scalar(1))
    count = graph.op("Mul", graph.op("Cast", places, to=int(ir.DataType.INT64)), counted)
    return graph.op("Add", count, pad)


def _visible(graph: GraphBuilder, mask: ir.Value, lookahead: int | None) -> ir.Value:
    """1 where a token (row) sees a key (column): `(batch, 1, 1, tokens)`, or `(batch, 1, tokens, tokens)`."""
    keys = graph.op("Unsqueeze", graph.op("Cast", mask, to=graph.float_type), graph.ints(1, 2))
    if lookahead is None:
        return keys
    tokens = graph.op("Shape", mask, start=1, end=2)
    square = graph.op("Expand", graph.scalar(1.0), graph.op("Concat", tokens, tokens, axis=0))
    return graph.op("Mul", keys, graph.op("Trilu", square, graph.int_scalar(lookahead), upper=0))
