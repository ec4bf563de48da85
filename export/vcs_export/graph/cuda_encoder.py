"""Encoders for ONNX Runtime's CUDA provider: no padding, fused kernels, and products in fp16.

These graphs read the weights of the encoder's other graph. The graph converts float32 weights,
which ONNX Runtime does once, when it opens the graph. Kernels of GELU and of normalisation add the
biases of the products before them. Sums of products, softmax, GELU and normalisation are float32
inside their kernels. The embeddings, the pooling and all steps after it are float32 throughout.

PackedMultiHeadAttention has no windows, and is no flash attention with a bias for each pair of
tokens, such as MPNet's. Such models, and models with max pooling, have no graph of this kind.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.encoders import EncoderCheckpoint
from vcs_export.checkpoint.sentence_folder import SentenceFolder
from vcs_export.checkpoint.xlm_roberta import PAD, SatCheckpoint
from vcs_export.graph.builder import GraphBuilder, StoredWeights, Weights
from vcs_export.graph.cuda_layouts import Texts
from vcs_export.graph.encoder import save_sentence
from vcs_export.graph.streamed import FLOAT
from vcs_export.graph.transformer import OPSET, POSITIONS, WORDS, AnyCheckpoint, position_rows
from vcs_export.graph.xlm_roberta import OUTPUT as LOGITS
from vcs_export.graph.xlm_roberta import label
from vcs_runtime.bundle.manifest import CudaGraph

_HALF = ir.DataType.FLOAT16


class CudaEncoder(GraphBuilder):
    """A CUDA graph of an encoder that shares the weights of the encoder's other graph.

    The weights `shared` are stored in type `precision`.
    """

    def __init__(self, precision: str, *shared: StoredWeights, pooled: bool = True) -> None:
        super().__init__(OPSET, precision, *shared)
        self.texts = Texts(self, pooled)

    def weight(self, name: str, array: Weights) -> ir.Value:
        """Return a tensor of the other graph."""
        value = super().weight(name, array)
        if name in self._weights:
            raise ValueError(f"{name} is not among the weights of the other graph")
        return value

    def half(self, value: ir.Value) -> ir.Value:
        """Return a tensor in fp16, under another name if it is converted."""
        half = self._to(_HALF, value)
        if half is not value:
            half.name = f"{value.name}.fp16"
        return half

    def exact(self, value: ir.Value) -> ir.Value:
        """Return a tensor, or rows of it, in float32."""
        return self._to(FLOAT, value)

    def _to(self, kind: ir.DataType, value: ir.Value) -> ir.Value:
        return value if self.float_type == kind else self.op("Cast", value, to=int(kind))

    def embeddings(self, checkpoint: AnyCheckpoint, from_zero: bool) -> ir.Value:
        """Add the normalised sum of word and position vectors, float32 `(tokens, hidden)`."""
        words = self.op("Gather", self.weight(WORDS, checkpoint.tensor(WORDS)), self.texts.ids)
        table = self.weight(POSITIONS, position_rows(checkpoint, from_zero))
        places = self.op("Gather", table, self.texts.positions if from_zero else self._from_pad())

        def stored(name: str) -> ir.Value:
            return self.exact(self.weight(name, checkpoint.tensor(name)))

        weight = stored("embeddings.LayerNorm.weight")
        bias = stored("embeddings.LayerNorm.bias")
        x = self.op("Add", self.exact(words), self.exact(places))
        epsilon = checkpoint.config.layer_norm_eps
        return self.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)

    def layers(self, checkpoint: AnyCheckpoint, x: ir.Value, count: int | None = None) -> ir.Value:
        """Add the first `count` layers to x, float32 `(tokens, hidden)`; the result is fp16.

        None adds all layers.
        """
        self.texts.prepare()
        x = self.op("Cast", x, to=int(_HALF))
        for layer in range(count or checkpoint.config.num_hidden_layers):
            x = self._layer(checkpoint, f"encoder.layer.{layer}.", x)
        return x

    def save_logits(
        self, x: ir.Value, weight: NDArray[np.float32], bias: NDArray[np.float32], other: Path
    ) -> None:
        """Add a float32 token classifier to x, fp16 `(tokens, hidden)`, and write the graph."""
        model = _beside(other)
        matrix = self.exact(self.weight("classifier.weight", weight.T))
        product = self.op("MatMul", self.op("Cast", x, to=int(FLOAT)), matrix)
        logits = self.op("Add", product, self.exact(self.weight("classifier.bias", bias)))
        self.save(logits, LOGITS, ("tokens", 1), model, model)

    def _layer(self, checkpoint: AnyCheckpoint, prefix: str, x: ir.Value) -> ir.Value:
        """Add one layer to x, fp16 `(tokens, hidden)`."""
        config = checkpoint.config

        def stored(name: str) -> ir.Value:
            tensor = checkpoint.tensor(f"{prefix}{name}")
            return self.weight(f"{prefix}{name}", tensor.T if tensor.ndim == 2 else tensor)

        def product(name: str, x: ir.Value) -> ir.Value:
            return self.op("MatMul", x, self.half(stored(f"{name}.weight")))

        def normed(name: str, addend: ir.Value, x: ir.Value, bias: ir.Value) -> ir.Value:
            scale = self.half(stored(f"{name}.LayerNorm.weight"))
            shift = self.half(stored(f"{name}.LayerNorm.bias"))
            inputs = (addend, x, scale, shift, bias)
            epsilon = config.layer_norm_eps
            return self.microsoft_op("SkipLayerNormalization", *inputs, epsilon=epsilon)

        query = product("attention.self.query", x)
        key = product("attention.self.key", x)
        value = product("attention.self.value", x)
        # The bias of keys is left out: it adds the same to all scores of a query, and changes no
        # weight of softmax.
        query = self.op("Add", query, self.half(stored("attention.self.query.bias")))
        seen = self.texts.attention(query, key, value, config.num_attention_heads)

        # The weights of softmax add up to 1, so that each token gets the whole bias of values. It
        # passes through the next product, whose bias takes it up.
        matrix = stored("attention.output.dense.weight")
        value_bias = self.exact(stored("attention.self.value.bias"))
        through = self.op("MatMul", value_bias, self.exact(matrix))
        bias = self.op("Add", through, self.exact(stored("attention.output.dense.bias")))
        out = self.op("MatMul", seen, self.half(matrix))
        x = normed("attention.output", out, x, self.op("Cast", bias, to=int(_HALF)))

        inner = product("intermediate.dense", x)
        gelu = self.microsoft_op("BiasGelu", inner, self.half(stored("intermediate.dense.bias")))
        out = product("output.dense", gelu)
        return normed("output", out, x, self.half(stored("output.dense.bias")))

    def _from_pad(self) -> ir.Value:
        """Return each token's position, counted from the pad's, as in `xlm_roberta.positions`."""
        pad = self.int_scalar(PAD)
        other = self.op("Not", self.op("Equal", self.texts.ids, pad))
        counted = self.op("Cast", other, to=int(ir.DataType.INT64))
        # Tokens other than pads before each token, over all texts. The count at the text's first
        # token is subtracted from it.
        before = self.op("CumSum", counted, self.int_scalar(0), exclusive=1)
        tokens = self.op("Squeeze", self.op("Shape", self.texts.ids))
        rows = self.op("Range", self.int_scalar(0), tokens, self.int_scalar(1))
        first = self.op("Gather", before, self.op("Sub", rows, self.texts.positions))
        place = self.op("Sub", self.op("Add", before, counted), first)
        return self.op("Add", self.op("Mul", place, counted), pad)


def _beside(other: Path) -> Path:
    return other.with_suffix(".cuda.onnx")


def cuda_graph(other: str) -> CudaGraph:
    """Return the manifest's entry for the CUDA graph beside the graph `other` of a bundle."""
    return CudaGraph(_beside(Path(other)).as_posix(), "varlen", "fp16")


def write_cuda_encoder(
    checkpoint: EncoderCheckpoint, sentence: SentenceFolder, other: Path, stored: StoredWeights
) -> bool:
    """Write the CUDA graph beside `write_encoder`'s graph, with the same output.

    Return False if the encoder cannot have a CUDA graph.
    """
    if checkpoint.config.relative or sentence.pooling == "max":
        return False
    graph = CudaEncoder("fp32", stored)
    x = graph.layers(checkpoint, graph.embeddings(checkpoint, not checkpoint.config.from_pad))
    if sentence.pooling == "mean":
        graph.texts.prepare_mean()
        vectors = graph.texts.mean(x, _HALF)
    else:
        row = graph.texts.first(x) if sentence.pooling == "cls" else graph.texts.last(x)
        vectors = graph.op("Cast", row, to=int(FLOAT))
    save_sentence(graph, vectors, sentence, _beside(other), stored.path)
    return True


def write_cuda_sat(
    checkpoint: SatCheckpoint, other: Path, stored: StoredWeights, precision: str
) -> bool:
    """Write the CUDA graph beside `write_sat`'s graph, with logits `(tokens, 1)`.

    Return False if the model cannot have a CUDA graph.
    """
    if checkpoint.config.lookahead is not None:
        return False
    graph = CudaEncoder(precision, stored, pooled=False)
    x = graph.layers(checkpoint, graph.embeddings(checkpoint, from_zero=False))
    graph.save_logits(x, *label(checkpoint), other)
    return True
