"""NV-Embed as a model to write graphs of: a decoder, pooled by trained latents."""

from __future__ import annotations

from functools import cache

import onnx_ir as ir

from vcs_export.checkpoint.nv_embed import DECODER_PREFIX, NvEmbedCheckpoint
from vcs_export.graph.attention_layouts import Layout
from vcs_export.graph.decoder_model import DecoderModel
from vcs_export.graph.latent import Array, fold, latent_pooling


def nv_embed_model(opened: NvEmbedCheckpoint) -> DecoderModel:
    """Return the model of an opened NV-Embed checkpoint."""

    @cache
    def folded() -> tuple[Array, Array]:
        return fold(opened.latent, opened.tensors)

    def head(layout: Layout, hidden: ir.Value) -> ir.Value:
        return latent_pooling(layout, opened.latent, opened.tensors, folded(), hidden)

    dimension = opened.decoder.hidden_size
    return DecoderModel(opened.folder, opened.decoder, opened.tensors, DECODER_PREFIX, dimension, head)
