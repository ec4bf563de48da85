"""ModernBERT as an ONNX graph: token ids in, one unit vector a text out.

In most layers a token sees only near tokens. A long text is therefore cut into blocks there, each
of which attends to itself and what lies within reach on both sides. So the scores of these layers
grow with the length of a text, and not with its square.

Only standard operators of opset 17 are used, as in `graph.transformer`. Rotation is spelt out:
RotaryEmbedding came with opset 23.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

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

    # Place of each token of each block `(blocks, size)`; the last may repeat a place.
    queries: ir.Value
    keys: ir.Value  # places of the tokens that a block sees some of, `(blocks, width)`
    size: ir.Value  # tokens of a block `(1,)`
    width: ir.Value  # tokens that a block sees `(1,)`
    whole: ir.Value  # the shape `(batch, -1, hidden)`, in which all blocks of a text are joined
    tokens: ir.Value  # tokens of a text `(1,)`


@dataclass(frozen=True)
class _View:
    """What tokens see in a kind of layers."""

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
        # The embeddings have just been normalised.
        normed = _norm(graph, checkpoint, f"{prefix}attn_norm", x) if layer else x
        seen = _attention(
            graph, checkpoint, prefix, normed, near if config.local_layers[layer] else everything
        )
        x = graph.op("Add", x, seen)
        x = graph.op(
            "Add",
            x,
            _gated(graph, checkpoint, prefix, _norm(graph, checkpoint, f"{prefix}mlp_norm", x)),
        )
    vectors = pooled(graph, _norm(graph, checkpoint, "final_norm", x), visible, sentence.pooling)
    return save_sentence(graph, vectors, sentence, model, weights)


def _near(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, ids: ir.Value, mask: ir.Value
) -> _View:
    """Return what tokens see in layers with a window."""
    config = checkpoint.config
    reach = config.reach
    whole, single = (graph.int_scalar(number) for number in (0, 1))
    tokens = graph.op("Shape", ids, start=1, end=2)
    count = graph.op("Squeeze", tokens)
    # A text that is no longer than what a block sees stays whole.
    long = graph.op("Greater", count, graph.int_scalar(4 * reach))
    size = graph.op("Where", long, graph.int_scalar(max(1, 2 * reach)), count)
    margin = graph.op("Where", long, graph.int_scalar(reach), whole)
    blocks = graph.op("Div", graph.op("Sub", graph.op("Add", count, size), single), size)
    starts = graph.op(
        "Unsqueeze", graph.op("Mul", graph.op("Range", whole, blocks, single), size), graph.ints(1)
    )
    queries = graph.op("Add", starts, graph.op("Range", whole, size, single))
    beyond = graph.op("Add", size, margin)
    # Sub in place of Neg, which `inference.onnx_session` does not count among the operators of
    # shapes.
    keys = graph.op(
        "Add", starts, graph.op("Range", graph.op("Sub", whole, margin), beyond, single)
    )
    last = graph.op("Sub", count, single)
    places = graph.op("Max", graph.op("Min", keys, last), whole)
    distance = graph.op(
        "Sub",
        graph.op("Unsqueeze", keys, graph.ints(1)),
        graph.op("Unsqueeze", queries, graph.ints(2)),
    )
    within = graph.op("LessOrEqual", graph.op("Abs", distance), graph.int_scalar(reach))
    inside = graph.op("Unsqueeze", graph.op("Equal", keys, places), graph.ints(1))
    pairs = graph.op("Cast", graph.op("And", within, inside), to=int(ir.DataType.FLOAT))
    tokens_of = graph.op("Unsqueeze", graph.op("Gather", mask, places, axis=1), graph.ints(2))
    seen = graph.op("Mul", pairs, graph.op("Cast", tokens_of, to=int(ir.DataType.FLOAT)))
    sizes = graph.op("Unsqueeze", size, graph.ints(0))
    widths = graph.op("Unsqueeze", graph.op("Add", beyond, margin), graph.ints(0))
    shape = graph.op("Concat", graph.ints(-1, 1), sizes, widths, axis=0)
    batch = graph.op("Shape", ids, start=0, end=1)
    return _View(
        attention_bias(graph, graph.op("Reshape", seen, shape)),
        _tables(graph, checkpoint, "rotation.local", config.local_rope_theta, ids),
        _Blocks(
            graph.op("Min", queries, last),
            places,
            sizes,
            widths,
            graph.op("Concat", batch, graph.ints(-1, config.hidden_size), axis=0),
            tokens,
        ),
    )


def _tables(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, name: str, theta: float, ids: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return the cosine and sine of each position's angles, each `(tokens, 1, head size / 2)`."""
    config = checkpoint.config
    # The longest text may be padded beyond the last position. These rows are masked.
    tables = rotation_tables(
        Rotation(theta),
        config.hidden_size // config.num_attention_heads,
        padded_length(config.capacity),
    )
    tokens = graph.op("Shape", ids, start=1, end=2)
    cosines, sines = (
        graph.op(
            "Slice",
            graph.weight(f"{name}.{part}", table[:, None]),
            graph.ints(0),
            tokens,
            graph.ints(0),
        )
        for part, table in zip(("cosines", "sines"), tables, strict=True)
    )
    return cosines, sines


def _attention(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, prefix: str, x: ir.Value, view: _View
) -> ir.Value:
    """Return the addend of attention."""
    config = checkpoint.config
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    stacked = checkpoint.tensor(f"{prefix}attn.Wqkv.weight")
    query, key, value = (
        graph.op(
            "Reshape",
            graph.linear(f"{prefix}attn.{name}", x, matrix),
            graph.ints(0, 0, heads, size),
        )
        for name, matrix in zip(("query", "key", "value"), np.split(stacked, 3), strict=True)
    )
    query, key = (rotated(graph, part, size, view.tables) for part in (query, key))
    if blocks := view.blocks:
        query = _cut(graph, query, blocks.queries, blocks.size, heads, size)
        key, value = (
            _cut(graph, part, blocks.keys, blocks.width, heads, size) for part in (key, value)
        )
    query, value = (graph.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
    key = graph.op("Transpose", key, perm=[0, 2, 3, 1])
    seen = attended(graph, query, key, value, view.bias, heads, size)
    if blocks:
        joined = graph.op("Reshape", seen, blocks.whole)
        seen = graph.op("Slice", joined, graph.ints(0), blocks.tokens, graph.ints(1))
    return graph.linear(f"{prefix}attn.Wo", seen, checkpoint.tensor(f"{prefix}attn.Wo.weight"))


def _cut(
    graph: GraphBuilder, x: ir.Value, places: ir.Value, width: ir.Value, heads: int, size: int
) -> ir.Value:
    """Return the rows of x at places: `(batch * blocks, width, heads, size)`."""
    shape = graph.op("Concat", graph.ints(-1), width, graph.ints(heads, size), axis=0)
    return graph.op("Reshape", graph.op("Gather", x, places, axis=1), shape)


def _gated(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, prefix: str, x: ir.Value
) -> ir.Value:
    """Return the addend of the gated feed-forward layer."""
    stacked = checkpoint.tensor(f"{prefix}mlp.Wi.weight")
    inner, gate = (
        graph.linear(f"{prefix}mlp.{name}", x, matrix)
        for name, matrix in zip(("inner", "gate"), np.split(stacked, 2), strict=True)
    )
    gated = graph.op("Mul", gelu(graph, inner), gate)
    return graph.linear(f"{prefix}mlp.Wo", gated, checkpoint.tensor(f"{prefix}mlp.Wo.weight"))


def _norm(
    graph: GraphBuilder, checkpoint: ModernBertCheckpoint, name: str, x: ir.Value
) -> ir.Value:
    """Add the checkpoint's layer normalisation `name`, which has no bias."""
    weight = checkpoint.tensor(f"{name}.weight")
    return graph.layer_norm(name, x, weight, None, checkpoint.config.layer_norm_eps)
