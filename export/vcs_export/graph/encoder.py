"""A sentence encoder as an ONNX graph: token ids in, one unit vector per text out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.encoders import BUCKETS, RELATIVE, EncoderCheckpoint
from vcs_export.checkpoint.sentence_folder import SentenceFolder
from vcs_export.graph.builder import GraphBuilder, StoredWeights
from vcs_export.graph.pooling import pooled, unit_length
from vcs_export.graph.transformer import INPUTS, OPSET, attention_bias, embeddings, layers
from vcs_export.graph.xlm_roberta import positions
from vcs_runtime.bundle.layouts import padded_length

OUTPUT = "embedding"

# MPNet has a row for each distance below the first number, and one row for all above the second.
_EXACT, _FURTHEST = BUCKETS // 4, 128


def write_encoder(
    checkpoint: EncoderCheckpoint, sentence: SentenceFolder, model: Path, weights: Path
) -> StoredWeights:
    """Write the encoder's graph, and its weights beside it.

    The inputs `input_ids` and `attention_mask` are int64 `(batch, tokens)`. The output `embedding`
    is float32 `(batch, dimension)`, rows of unit length, or zero for a row without tokens. Token
    types are all 0.
    """
    graph = GraphBuilder(OPSET)
    config = checkpoint.config
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    visible = graph.op("Cast", mask, to=int(ir.DataType.FLOAT))
    bias = attention_bias(graph, graph.op("Unsqueeze", visible, graph.ints(1, 2)))
    places = positions(graph, ids, mask) if config.from_pad else None
    x = embeddings(graph, checkpoint, ids, places)
    if config.relative:
        bias = graph.op("Add", bias, _distance_bias(graph, checkpoint, ids))
    hidden = layers(graph, checkpoint, x, bias)
    vectors = pooled(graph, hidden, visible, sentence.pooling)
    return save_sentence(graph, vectors, sentence, model, weights)


def save_sentence(
    graph: GraphBuilder, vectors: ir.Value, sentence: SentenceFolder, model: Path, weights: Path
) -> StoredWeights:
    """Add a sentence encoder's steps after pooling, and write the graph.

    `vectors` is the pooled output, float32 `(batch, width)`.
    """
    width = sentence.width
    for number, step in enumerate(sentence.steps):
        if step is None:
            vectors = unit_length(graph, vectors)
            continue
        vectors = graph.linear(f"dense.{number}", vectors, step.weight, step.bias)
        if step.activation:
            vectors = graph.op(step.activation, vectors)
        width = len(step.bias)
    # A bundle's vectors always have unit length, whatever the folder's last step is.
    unit = bool(sentence.steps) and sentence.steps[-1] is None
    if sentence.dimension < width:
        start, stop = graph.ints(0), graph.ints(sentence.dimension)
        vectors = graph.op("Slice", vectors, start, stop, graph.ints(1))
        unit = False
    if not unit:
        vectors = unit_length(graph, vectors)
    return graph.save(vectors, OUTPUT, ("batch", sentence.dimension), model, weights)


def _distance_bias(graph: GraphBuilder, checkpoint: EncoderCheckpoint, ids: ir.Value) -> ir.Value:
    """Return MPNet's score bias by distance of key and query, `(1, heads, tokens, tokens)`."""
    # A table with a row for each distance, from -most to most, saves the graph the logarithms.
    most = padded_length(checkpoint.config.capacity) - 1
    rows = checkpoint.tensor(RELATIVE)[buckets(np.arange(-most, most + 1))]
    # The distance of each query (row) and key (column).
    tokens = graph.op("Squeeze", graph.op("Shape", ids, start=1, end=2))
    places = graph.op("Range", graph.int_scalar(0), tokens, graph.int_scalar(1))
    keys = graph.op("Unsqueeze", places, graph.ints(0))
    queries = graph.op("Unsqueeze", places, graph.ints(1))
    distance = graph.op("Sub", keys, queries)
    row = graph.op("Add", distance, graph.int_scalar(most))
    bias = graph.op("Gather", graph.weight("encoder.distance_bias", rows), row)
    return graph.op("Unsqueeze", graph.op("Transpose", bias, perm=[2, 0, 1]), graph.ints(0))


def buckets(distance: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return MPNet's row of `RELATIVE` for each distance, the key's place less the query's.

    Each direction has half of the rows. In each half, the first half are for single distances, and
    the others widen by a constant factor.
    """
    half = BUCKETS // 2
    size = np.abs(distance)
    # Single precision, as in training, because the last bit decides where a row begins.
    ratio = np.maximum(size, 1).astype(np.float32) / np.float32(_EXACT)
    share = np.log(ratio) / np.float32(np.log(_FURTHEST / _EXACT))
    wide = _EXACT + (share * np.float32(half - _EXACT)).astype(np.int64)
    row = np.where(size < _EXACT, size, np.minimum(wide, half - 1))
    return np.where(distance > 0, row + half, row)
