"""A decoder pooled as sentence-transformers does: mean or last token, dense layers, shorter vectors."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from vcs_export.checkpoint.decoders.opening import DecoderCheckpoint
from vcs_export.checkpoint.sentence_folder import Dense
from vcs_export.graph.attention_layouts import Layout
from vcs_export.graph.decoder_model import DecoderModel
from vcs_export.graph.pooling import unit_length
from vcs_export.graph.streamed import FLOAT

Steps = tuple[Dense | None, ...]


def sentence_decoder(opened: DecoderCheckpoint, pooling: str, steps: Steps, dimension: int) -> DecoderModel:
    """Return the model of an opened decoder. Its unit vectors have the first `dimension` numbers."""
    return DecoderModel(
        opened.folder, opened.settings.config, opened.tensors, opened.prefix, dimension,
        partial(_head, pooling, steps, dimension), only_last=pooling == "lasttoken",
    )  # fmt: skip


def _head(pooling: str, steps: Steps, dimension: int, layout: Layout, hidden: ir.Value) -> ir.Value:
    graph = layout.graph
    vectors = hidden if pooling == "lasttoken" else layout.mean(hidden, FLOAT)
    width = layout.config.hidden_size
    for number, step in enumerate(steps):
        if step is None:
            vectors = unit_length(graph, vectors)
            continue
        weight, bias = (
            graph.array(f"dense.{number}.{name}", array, FLOAT)
            for name, array in (("weight", step.weight), ("bias", step.bias))
        )
        vectors = graph.op("Gemm", vectors, weight, bias, transB=1)
        vectors = graph.op(step.activation, vectors) if step.activation else vectors
        width = len(step.bias)
    if dimension < width:
        vectors = graph.op("Slice", vectors, graph.ints(0), graph.ints(dimension), graph.ints(1))
    elif steps and steps[-1] is None:
        return vectors
    return unit_length(graph, vectors)
