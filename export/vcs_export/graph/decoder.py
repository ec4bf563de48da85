"""The layers of a decoder of Mistral's and Llama's kind: RMS norms, grouped queries, rotation, SwiGLU.

The sum that runs through the layers, the norms and what comes out are float32 in every precision: the sum
of a Mistral has outliers of which half precision would leave nothing else. Weights are used in the
checkpoint's own `(out, in)` layout, so that none has to be copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.attention_layouts import Layout
from vcs_export.graph.streamed import FLOAT, LargeGraph

Tensors = Mapping[str, StoredTensor]


def decoder(layout: Layout, tensors: Tensors, prefix: str) -> ir.Value:
    """The last hidden states after the final norm: float32 `(tokens, hidden)`.

    tensors  those of `vcs_export.checkpoint.decoder.decoder_shapes`, by their names in the checkpoint
    prefix   what stands before these names
    """
    graph = layout.graph
    x = graph.table(tensors[f"{prefix}embed_tokens.weight"], layout.ids)
    for layer in range(layout.config.num_hidden_layers):
        name = f"{prefix}layers.{layer}."
        x = graph.op("Add", x, self_attention(layout, tensors, name, x))
        x = graph.op("Add", x, feed_forward(layout, tensors, name, x))
    return _norm(layout, tensors[f"{prefix}norm.weight"], x)


def self_attention(layout: Layout, tensors: Tensors, prefix: str, x: ir.Value) -> ir.Value:
    """What attention adds to x, float32 `(tokens, hidden)`, its norm included."""
    graph = layout.graph
    normed = graph.computed(_norm(layout, tensors[f"{prefix}input_layernorm.weight"], x))
    query, key, value = (
        graph.linear(normed, tensors[f"{prefix}self_attn.{name}_proj.weight"]) for name in "qkv"
    )
    seen = layout.attention(query, key, value)
    return graph.exact(graph.linear(seen, tensors[f"{prefix}self_attn.o_proj.weight"]))


def feed_forward(layout: Layout, tensors: Tensors, prefix: str, x: ir.Value) -> ir.Value:
    """What the gated layer adds to x, float32 `(tokens, hidden)`, its norm included."""
    graph = layout.graph
    normed = graph.computed(_norm(layout, tensors[f"{prefix}post_attention_layernorm.weight"], x))
    gate, up = (graph.linear(normed, tensors[f"{prefix}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
    silu = graph.op("Mul", gate, graph.op("Sigmoid", gate))
    return graph.exact(graph.linear(graph.op("Mul", silu, up), tensors[f"{prefix}mlp.down_proj.weight"]))


def layer_norm(
    graph: LargeGraph, tensors: Tensors, name: str, x: ir.Value, epsilon: float = 1e-5
) -> ir.Value:
    """Layer normalisation over the last axis; float32."""
    scale, shift = (graph.stored(tensors[f"{name}.{part}"], FLOAT) for part in ("weight", "bias"))
    return graph.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)


def _norm(layout: Layout, weight: StoredTensor, x: ir.Value) -> ir.Value:
    return layout.rms_norm(x, layout.graph.stored(weight, FLOAT))
