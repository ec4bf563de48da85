"""From token vectors to one unit vector per text, for any encoder."""

from __future__ import annotations

import onnx_ir as ir

from vcs_export.graph.nodes import Graph

# Smaller than the norm of any real vector, so that only the zero vector is divided by it.
_SMALLEST_NORM = 1e-12
# Smaller than any number of a token vector.
_BELOW_ALL = -1e9


def mean_pooling(graph: Graph, tokens: ir.Value, mask: ir.Value) -> ir.Value:
    """Add the mean `(batch, hidden)` of the tokens where the mask is 1; all values are float32.

    `tokens` is `(batch, tokens, hidden)`. The mask `(batch, tokens)` has ones and zeros. A row of
    zeros gives the zero vector.
    """
    # As a product, the masked sum takes one pass over the token vectors, without a masked copy.
    row = graph.op("Unsqueeze", mask, graph.ints(1))
    total = graph.op("Squeeze", graph.op("MatMul", row, tokens), graph.ints(1))
    count = graph.op("ReduceSum", mask, graph.ints(1), keepdims=1)
    return graph.op("Div", total, graph.op("Max", count, graph.scalar(1.0)))


def pooled(graph: Graph, tokens: ir.Value, mask: ir.Value, pooling: str) -> ir.Value:
    """Add a pooling from `checkpoint.sentence_folder.POOLINGS`, with `mean_pooling`'s shapes."""
    if pooling == "mean":
        return mean_pooling(graph, tokens, mask)
    if pooling == "cls":
        first = graph.op("Gather", tokens, graph.int_scalar(0), axis=1)
        there = graph.op("Slice", mask, graph.ints(0), graph.ints(1), graph.ints(1))
        return graph.op("Mul", first, there)
    count = graph.op("ReduceSum", mask, graph.ints(1), keepdims=1)
    if pooling == "lasttoken":
        # The last token is the only unmasked one at which the number of tokens is reached.
        reached = graph.op("Equal", graph.op("CumSum", mask, graph.int_scalar(1)), count)
        last = graph.op("Mul", graph.op("Cast", reached, to=int(ir.DataType.FLOAT)), mask)
        row = graph.op("Unsqueeze", last, graph.ints(1))
        return graph.op("Squeeze", graph.op("MatMul", row, tokens), graph.ints(1))
    if pooling != "max":
        raise ValueError(f"pooling {pooling!r}")
    seen = graph.op("Unsqueeze", graph.op("Cast", mask, to=int(ir.DataType.BOOL)), graph.ints(2))
    masked = graph.op("Where", seen, tokens, graph.scalar(_BELOW_ALL))
    if graph.opset < 18:
        largest = graph.op("ReduceMax", masked, axes=[1], keepdims=0)
    else:
        largest = graph.op("ReduceMax", masked, graph.ints(1), keepdims=0)
    return graph.op("Mul", largest, graph.op("Min", count, graph.scalar(1.0)))


def unit_length(graph: Graph, vectors: ir.Value) -> ir.Value:
    """Divide vectors, float32 `(batch, hidden)`, by their Euclidean norms.

    A zero vector stays zero.
    """
    # LpNormalization has no CUDA kernel. The kernel of ReduceL2 needs cuDNN, as nothing else here.
    squares = graph.op("Mul", vectors, vectors)
    total = graph.op("ReduceSum", squares, graph.ints(-1), keepdims=1)
    norm = graph.op("Sqrt", total)
    return graph.op("Div", vectors, graph.op("Max", norm, graph.scalar(_SMALLEST_NORM)))
