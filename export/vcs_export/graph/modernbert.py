"""ModernBERT as an ONNX graph: token ids in, one unit vector a text out.

In most layers a token sees only near tokens. These layers cut a long text into blocks. Each block
attends to its tokens and to all tokens within reach on both sides, so that the number of
scores grows with the length of the text, and not with its square.

Only standard operators of opset 17 are used, as in `graph.transformer`. Rotation is spelt out:
RotaryEmbedding came with opset 23.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.decoder import Rotation
from vcs_export.checkpoint.modernbert import ModernBertCheckpoint
from vcs_export.checkpoint.sentence_folder import SentenceFolder
from vcs_export.graph.attention_layouts import rotated, rotation_tables
from vcs_export.graph.builder import GraphBuilder, StoredWeights
from vcs_export.graph.encoder import save_sentence
from vcs_export.graph.pooling import pooled
from vcs_export.graph.transformer import INPUTS, OPSET, attended, attention_bias, gelu
from vcs_runtime.bundle.layouts import padded_length


@dataclass(frozen=True)
class _Blocks:
    """The blocks of a text in layers with a window."""

    # Positions of each block's tokens, `(blocks, size)`. The last block may repeat a position.
    queries: ir.Value
    keys: ir.Value  # positions of the tokens within reach of a block, `(blocks, width)`
    size: ir.Value  # number of tokens of a block `(1,)`
    width: ir.Value  # number of tokens within reach of a block `(1,)`
    joined: ir.Value  # the shape `(batch, -1, hidden)`, which joins the blocks of a text
    tokens: ir.Value  # tokens of a text `(1,)`


@dataclass(frozen=True)
class _View:
    """The tokens that a token sees in one kind of layers."""

    bias: ir.Value  # added to the scores of attention
    tables: tuple[ir.Value, ir.Value]  # cosines and sines, `(tokens, 1, head size / 2)`
    blocks: _Blocks | None = None  # None: a text is not cut


def write_modernbert(
    checkpoint: ModernBertCheckpoint, sentence: SentenceFolder, model: Path, weights: Path
) -> StoredWeights:
    """Write the graph, with its weights beside it and the inputs and output of `write_encoder`."""
    graph = GraphBuilder(OPSET)
    config = checkpoint.config
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    visible = graph.op("Cast", mask, to=int(ir.DataType.FLOAT))
    name = "embeddings.tok_embeddings.weight"
    x = _norm(graph, checkpoint, "embeddings.norm", graph.rows(name, checkpoint.tensor(name), ids))
    everything = _View(
        attention_bias(graph, graph.op("Unsqueeze", visible, graph.ints(1, 2))),
        _tables(graph, checkpoint, "rotation.global", config.global_rope_theta, ids),
    )
    near = _near(graph, checkpoint, ids, mask)
    for layer in range(config.num_hidden_layers):
        prefix = f"layers.{layer}."
        normed = x
        if layer:  # the embeddings have just been normalised
            normed = _norm(graph, checkpoint, f"{prefix}attn_norm", x)
        view = near if config.local_layers[layer] else everything
        x = graph.op("Add", x, _attention(graph, checkpoint, prefix, normed, view))
        normed = _norm(graph, checkpoint, f"{prefix}mlp_norm", x)
        x = graph.op("Add", x, _gated(graph, checkpoint, prefix, normed))
    hidden = _norm(graph, checkpoint, "final_norm", x)
    vectors = pooled(graph, hidden, visible, sentence.pooling)
    return save_sentence(graph, vectors, sentence, model, weights)


def _near(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, ids: ir.Value, mask: ir.Value
) -> _View:
    """Return the tokens that a token sees in layers with a window."""
    config = checkpoint.config
    reach = config.reach
    zero = graph.int_scalar(0)
    one = graph.int_scalar(1)
    tokens = graph.op("Shape", ids, start=1, end=2)
    length = graph.op("Squeeze", tokens)

    # A text that fits within the reach of a block stays whole: one block without a margin.
    long = graph.op("Greater", length, graph.int_scalar(4 * reach))
    size = graph.op("Where", long, graph.int_scalar(max(1, 2 * reach)), length)
    margin = graph.op("Where", long, graph.int_scalar(reach), zero)

    # The first position of each block. The number of blocks is rounded up.
    rounded = graph.op("Sub", graph.op("Add", length, size), one)
    numbers = graph.op("Range", zero, graph.op("Div", rounded, size), one)
    starts = graph.op("Unsqueeze", graph.op("Mul", numbers, size), graph.ints(1))

    # The positions of each block's queries, and of its keys, which begin and end a margin further
    # out. Both may lie outside the text.
    queries = graph.op("Add", starts, graph.op("Range", zero, size, one))
    end = graph.op("Add", size, margin)
    # Not Neg, which `inference.onnx_session` does not count among the operators of shapes.
    offsets = graph.op("Range", graph.op("Sub", zero, margin), end, one)
    keys = graph.op("Add", starts, offsets)
    last = graph.op("Sub", length, one)
    places = graph.op("Max", graph.op("Min", keys, last), zero)

    # A query sees a key within reach, inside the text, and not masked.
    columns = graph.op("Unsqueeze", keys, graph.ints(1))
    rows = graph.op("Unsqueeze", queries, graph.ints(2))
    distance = graph.op("Abs", graph.op("Sub", columns, rows))
    within = graph.op("LessOrEqual", distance, graph.int_scalar(reach))
    inside = graph.op("Unsqueeze", graph.op("Equal", keys, places), graph.ints(1))
    pairs = graph.op("Cast", graph.op("And", within, inside), to=int(ir.DataType.FLOAT))
    unmasked = graph.op("Unsqueeze", graph.op("Gather", mask, places, axis=1), graph.ints(2))
    seen = graph.op("Mul", pairs, graph.op("Cast", unmasked, to=int(ir.DataType.FLOAT)))

    # Attention takes each block as a text: `(batch * blocks, 1, size, width)`.
    sizes = graph.op("Unsqueeze", size, graph.ints(0))
    widths = graph.op("Unsqueeze", graph.op("Add", end, margin), graph.ints(0))
    shape = graph.op("Concat", graph.ints(-1, 1), sizes, widths, axis=0)
    batch = graph.op("Shape", ids, start=0, end=1)
    bias = attention_bias(graph, graph.op("Reshape", seen, shape))
    tables = _tables(graph, checkpoint, "rotation.local", config.local_rope_theta, ids)
    blocks = _Blocks(
        queries=graph.op("Min", queries, last),
        keys=places,
        size=sizes,
        width=widths,
        joined=graph.op("Concat", batch, graph.ints(-1, config.hidden_size), axis=0),
        tokens=tokens,
    )
    return _View(bias, tables, blocks)


def _tables(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, name: str, theta: float, ids: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return the cosine and sine of each position's angles, each `(tokens, 1, head size / 2)`."""
    config = checkpoint.config
    size = config.hidden_size // config.num_attention_heads
    # The longest text may be padded beyond the last position. These rows are masked.
    cosines, sines = rotation_tables(Rotation(theta), size, padded_length(config.capacity))
    tokens = graph.op("Shape", ids, start=1, end=2)

    def first_rows(part: str, table: NDArray[np.float32]) -> ir.Value:
        stored = graph.weight(f"{name}.{part}", table[:, None])
        return graph.op("Slice", stored, graph.ints(0), tokens, graph.ints(0))

    return first_rows("cosines", cosines), first_rows("sines", sines)


def _attention(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, prefix: str, x: ir.Value, view: _View
) -> ir.Value:
    """Return what attention adds to x, the normalised input of a layer."""
    config = checkpoint.config
    heads = config.num_attention_heads
    size = config.hidden_size // heads

    def by_head(name: str, matrix: NDArray[np.float32]) -> ir.Value:
        projected = graph.linear(f"{prefix}attn.{name}", x, matrix)
        return graph.op("Reshape", projected, graph.ints(0, 0, heads, size))

    # The checkpoint has the three matrices in one.
    matrices = np.split(checkpoint.tensor(f"{prefix}attn.Wqkv.weight"), 3)
    query = by_head("query", matrices[0])
    key = by_head("key", matrices[1])
    value = by_head("value", matrices[2])

    query = rotated(graph, query, size, view.tables)
    key = rotated(graph, key, size, view.tables)
    blocks = view.blocks
    if blocks:
        query = _cut(graph, query, blocks.queries, blocks.size, heads, size)
        key = _cut(graph, key, blocks.keys, blocks.width, heads, size)
        value = _cut(graph, value, blocks.keys, blocks.width, heads, size)

    query = graph.op("Transpose", query, perm=[0, 2, 1, 3])
    value = graph.op("Transpose", value, perm=[0, 2, 1, 3])
    key = graph.op("Transpose", key, perm=[0, 2, 3, 1])
    seen = attended(graph, query, key, value, view.bias, heads, size)
    if blocks:
        # Join the blocks, and drop the tokens that the last block repeats.
        joined = graph.op("Reshape", seen, blocks.joined)
        seen = graph.op("Slice", joined, graph.ints(0), blocks.tokens, graph.ints(1))
    return graph.linear(f"{prefix}attn.Wo", seen, checkpoint.tensor(f"{prefix}attn.Wo.weight"))


def _cut(
    graph: GraphBuilder, x: ir.Value, places: ir.Value, width: ir.Value, heads: int, size: int
) -> ir.Value:
    """Return the rows of x at `places`, `(batch * blocks, width, heads, size)`."""
    shape = graph.op("Concat", graph.ints(-1), width, graph.ints(heads, size), axis=0)
    return graph.op("Reshape", graph.op("Gather", x, places, axis=1), shape)


def _gated(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, prefix: str, x: ir.Value
) -> ir.Value:
    """Return what the gated feed-forward layer adds to x, its normalised input."""
    # The checkpoint has the two matrices in one.
    matrices = np.split(checkpoint.tensor(f"{prefix}mlp.Wi.weight"), 2)
    inner = graph.linear(f"{prefix}mlp.inner", x, matrices[0])
    gate = graph.linear(f"{prefix}mlp.gate", x, matrices[1])
    gated = graph.op("Mul", gelu(graph, inner), gate)
    return graph.linear(f"{prefix}mlp.Wo", gated, checkpoint.tensor(f"{prefix}mlp.Wo.weight"))


def _norm(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, name: str, x: ir.Value
) -> ir.Value:
    """Add the checkpoint's layer normalisation `name`, which has no bias."""
    weight = checkpoint.tensor(f"{name}.weight")
    return graph.layer_norm(name, x, weight, None, checkpoint.config.layer_norm_eps)
