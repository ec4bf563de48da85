"""The layers of decoders such as Mistral, Qwen and Gemma: RMS norms, grouped queries, rotation, a gate.

The running sum of the layers, the norms and the output are float32 in every precision, because a Mistral's
sum has outliers beside which half precision would lose all other numbers. Weights are used in the
checkpoint's own `(out, in)` layout, so that none must be copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.attention_layouts import Layout
from vcs_export.graph.streamed import FLOAT, StreamedGraph

Tensors = Mapping[str, StoredTensor]


def decoder(layout: Layout, tensors: Tensors, prefix: str, only_last: bool = False) -> ir.Value:
    """Add all layers and the final norm: float32 `(tokens, hidden)`, or `(batch, hidden)` of last tokens."""
    graph, config = layout.graph, layout.config
    x = graph.table(tensors[f"{prefix}embed_tokens.weight"], layout.ids)
    if config.embedding_scale != 1:
        x = graph.op("Mul", x, graph.scalar(config.embedding_scale))
    for layer in range(config.num_hidden_layers):
        name = f"{prefix}layers.{layer}."
        local = config.local is not None and config.local.layers[layer]
        seen = self_attention(layout, tensors, name, x, local)
        few = only_last and layer == config.num_hidden_layers - 1
        if few:
            x, seen = layout.last(x), layout.last(seen)
        addend = graph.linear(seen, tensors[f"{name}self_attn.o_proj.weight"])
        x = _sum(layout, tensors, f"{name}post_attention_layernorm.weight", x, addend, few)
        addend = feed_forward(layout, tensors, name, x)
        x = _sum(layout, tensors, f"{name}post_feedforward_layernorm.weight", x, addend, few)
    return layout.rms_norm(x, tensors[f"{prefix}norm.weight"], FLOAT)


def self_attention(layout: Layout, tensors: Tensors, prefix: str, x: ir.Value, local: bool) -> ir.Value:
    """Return what the heads of attention see, including its norm, for x, float32 `(tokens, hidden)`.

    It is `(tokens, heads * size)`, of the type in which matrices are multiplied.
    """
    graph, config = layout.graph, layout.config
    normed = layout.rms_norm(x, tensors[f"{prefix}input_layernorm.weight"], graph.compute)
    projected = {}
    for name in "qkv":
        bias = tensors[f"{prefix}self_attn.{name}_proj.bias"] if config.qkv_bias else None
        projected[name] = graph.linear(normed, tensors[f"{prefix}self_attn.{name}_proj.weight"], bias)
    if config.qk_norm:
        for name, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            weight = tensors[f"{prefix}self_attn.{name}_norm.weight"]
            projected[name] = layout.head_norm(projected[name], weight, heads)
    return layout.attention(projected["q"], projected["k"], projected["v"], local)


def feed_forward(layout: Layout, tensors: Tensors, prefix: str, x: ir.Value) -> ir.Value:
    """Return the result of the gated layer, including its norm, for x, float32 `(tokens, hidden)`.

    It has the shape of x, and the type in which matrices are multiplied.
    """
    graph = layout.graph
    norm = "pre_feedforward_layernorm" if layout.config.sandwich else "post_attention_layernorm"
    normed = layout.rms_norm(x, tensors[f"{prefix}{norm}.weight"], graph.compute)
    gate, up = (graph.linear(normed, tensors[f"{prefix}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
    return graph.linear(layout.gated(gate, up), tensors[f"{prefix}mlp.down_proj.weight"])


def _sum(layout: Layout, tensors: Tensors, norm: str, x: ir.Value, addend: ir.Value, few: bool) -> ir.Value:
    """Add to x, float32, the result of half a layer, after its norm if it has one.

    If `few` is true, there is a row for each text instead of each token.
    """
    graph = layout.graph
    if layout.config.sandwich:
        return graph.op("Add", x, layout.rms_norm(graph.exact(addend), tensors[norm], FLOAT))
    return graph.op("Add", x, graph.exact(addend)) if few else layout.add(x, addend)


def layer_norm(
    graph: StreamedGraph, tensors: Tensors, name: str, x: ir.Value, epsilon: float = 1e-5
) -> ir.Value:
    """Add a layer normalisation over the last axis, float32."""
    scale, shift = (graph.stored(tensors[f"{name}.{part}"], FLOAT) for part in ("weight", "bias"))
    return graph.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)
