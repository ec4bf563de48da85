"""The layers of decoders such as Mistral and Llama: RMS norms, grouped queries, rotation, SwiGLU.

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


def decoder(layout: Layout, tensors: Tensors, prefix: str) -> ir.Value:
    """Add all layers of a decoder.

    Parameters
    ----------
    layout
        Input layout of the graph.
    tensors
        The tensors of `vcs_export.checkpoint.decoder.decoder_shapes`, by their names in the checkpoint.
    prefix
        Prefix of these names.

    Returns
    -------
    hidden
        The last hidden states after the final norm, float32 `(tokens, hidden)`.
    """
    graph = layout.graph
    x = graph.table(tensors[f"{prefix}embed_tokens.weight"], layout.ids)
    for layer in range(layout.config.num_hidden_layers):
        name = f"{prefix}layers.{layer}."
        x = layout.add(x, self_attention(layout, tensors, name, x))
        x = layout.add(x, feed_forward(layout, tensors, name, x))
    return layout.rms_norm(x, tensors[f"{prefix}norm.weight"], FLOAT)


def self_attention(layout: Layout, tensors: Tensors, prefix: str, x: ir.Value) -> ir.Value:
    """Return the addend of attention, including its norm, for x, float32 `(tokens, hidden)`.

    The addend has the type in which matrices are multiplied.
    """
    graph = layout.graph
    normed = layout.rms_norm(x, tensors[f"{prefix}input_layernorm.weight"], graph.compute)
    query, key, value = (
        graph.linear(normed, tensors[f"{prefix}self_attn.{name}_proj.weight"]) for name in "qkv"
    )
    seen = layout.attention(query, key, value)
    return graph.linear(seen, tensors[f"{prefix}self_attn.o_proj.weight"])


def feed_forward(layout: Layout, tensors: Tensors, prefix: str, x: ir.Value) -> ir.Value:
    """Return the addend of the gated layer, including its norm, as `self_attention` does."""
    graph = layout.graph
    normed = layout.rms_norm(x, tensors[f"{prefix}post_attention_layernorm.weight"], graph.compute)
    gate, up = (graph.linear(normed, tensors[f"{prefix}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
    return graph.linear(layout.gated(gate, up), tensors[f"{prefix}mlp.down_proj.weight"])


def layer_norm(
    graph: StreamedGraph, tensors: Tensors, name: str, x: ir.Value, epsilon: float = 1e-5
) -> ir.Value:
    """Add a layer normalisation over the last axis, float32."""
    scale, shift = (graph.stored(tensors[f"{name}.{part}"], FLOAT) for part in ("weight", "bias"))
    return graph.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)
