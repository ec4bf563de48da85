"""The ONNX graphs of a whole embedding model: a decoder, and a head that computes text vectors.

Weights are streamed or linked. They are used in the checkpoint's layout, `(out, in)`, so that none
must be copied. The running sum of the layers, the norms and the output are float32 in every
precision. A Mistral's sum has outliers beside which half precision would lose all other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx_ir as ir

from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.checkpoint.decoders.opening import DecoderCheckpoint
from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.checkpoint.sentence_folder import Dense
from vcs_export.graph.attention_layouts import Layout
from vcs_export.graph.cpu_layouts import CpuPacked
from vcs_export.graph.cuda_layouts import CudaPacked, Varlen
from vcs_export.graph.pooling import unit_length
from vcs_export.graph.streamed import COMPUTE, CUDA_COMPUTE, FLOAT, DataFile, StreamedGraph
from vcs_export.quantization import nbits
from vcs_export.write import Progress, silent
from vcs_runtime.bundle.manifest import CudaLayout

Tensors = Mapping[str, StoredTensor]


def decoder(layout: Layout, tensors: Tensors, prefix: str, only_last: bool = False) -> ir.Value:
    """Add all layers and the final norm; the result is float32 `(tokens, hidden)`.

    With `only_last`, the result is `(batch, hidden)`, one row for each text's last token.
    """
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
            # From here on every step works on single tokens, so that one row per text is enough.
            x, seen = layout.last(x), layout.last(seen)
        addend = graph.linear(seen, tensors[f"{name}self_attn.o_proj.weight"])
        x = _sum(layout, tensors, f"{name}post_attention_layernorm.weight", x, addend, few)
        addend = feed_forward(layout, tensors, name, x)
        x = _sum(layout, tensors, f"{name}post_feedforward_layernorm.weight", x, addend, few)
    return layout.rms_norm(x, tensors[f"{prefix}norm.weight"], FLOAT)


def self_attention(
    layout: Layout, tensors: Tensors, prefix: str, x: ir.Value, local: bool
) -> ir.Value:
    """Return the attention heads' output, input norm included, for x, float32 `(tokens, hidden)`.

    It is `(tokens, heads * size)`, of the type in which matrices are multiplied.
    """
    graph, config = layout.graph, layout.config
    normed = layout.rms_norm(x, tensors[f"{prefix}input_layernorm.weight"], graph.compute)
    projected = {}
    for name in "qkv":
        bias = tensors[f"{prefix}self_attn.{name}_proj.bias"] if config.qkv_bias else None
        projected[name] = graph.linear(
            normed, tensors[f"{prefix}self_attn.{name}_proj.weight"], bias
        )
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
    gate = graph.linear(normed, tensors[f"{prefix}mlp.gate_proj.weight"])
    up = graph.linear(normed, tensors[f"{prefix}mlp.up_proj.weight"])
    return graph.linear(layout.gated(gate, up), tensors[f"{prefix}mlp.down_proj.weight"])


def _sum(
    layout: Layout, tensors: Tensors, norm: str, x: ir.Value, addend: ir.Value, few: bool
) -> ir.Value:
    """Add to x, float32, the result of half a layer, after its norm if it has one.

    With `few`, x has one row per text instead of one per token.
    """
    graph = layout.graph
    if layout.config.sandwich:
        return graph.op("Add", x, layout.rms_norm(graph.exact(addend), tensors[norm], FLOAT))
    if few:
        return graph.op("Add", x, graph.exact(addend))
    return layout.add(x, addend)


def layer_norm(
    graph: StreamedGraph, tensors: Tensors, name: str, x: ir.Value, epsilon: float = 1e-5
) -> ir.Value:
    """Add a layer normalisation over the last axis, float32."""
    scale = graph.stored(tensors[f"{name}.weight"], FLOAT)
    shift = graph.stored(tensors[f"{name}.bias"], FLOAT)
    return graph.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)


PRECISIONS = tuple(COMPUTE)
OUTPUT = "embedding"
_OPSET = 24

Head = Callable[[Layout, ir.Value], ir.Value]
"""Adds the steps from the last hidden states to a text's vector, float32 `(batch, dimension)`."""


@dataclass(frozen=True)
class DecoderModel:
    """An embedding model whose checkpoint has been opened and checked."""

    folder: Path
    config: DecoderConfig
    tensors: Mapping[str, StoredTensor]  # by their names in the checkpoint, with the head's
    prefix: str  # of the decoder's names
    dimension: int  # length of a text's vector
    head: Head
    only_last: bool = False  # the head gets each text's last hidden state alone, `(batch, hidden)`

    @property
    def types(self) -> set[ir.DataType]:
        """The element types of the tensors."""
        return {tensor.type for tensor in self.tensors.values()}


@dataclass(frozen=True)
class Written:
    """The files that written graphs refer to."""

    links: Mapping[str, Path]  # files of the checkpoint, by name
    sha256: str  # of the data file beside the graphs


def cuda_layout(config: DecoderConfig, precision: str) -> CudaLayout | None:
    """Return the input layout of the CUDA graph, or None if CUDA runs the same graph as a CPU."""
    kind = _cuda_compute(config, precision)
    if kind == FLOAT:
        return None
    # The kernel of "varlen" takes only fp16. It is not causal, and has no windows.
    if kind != ir.DataType.FLOAT16 or config.causal or config.local is not None:
        return "packed"
    return "varlen"


def write_decoder_model(
    opened: DecoderModel,
    model: Path,
    precision: str,
    link: bool,
    progress: Progress = silent,
    *,
    cuda: Path | None = None,
) -> Written:
    """Write the graph, and the tensors that it does not link to into `model` + ".data".

    With `link`, tensors that are used unchanged stay in the checkpoint's files. A second graph, for
    CUDA, refers to the same files. It has other operators and another input layout, and may need a
    few further tensors. Raises CheckpointError or OSError.

    The output `embedding` is float32 `(batch, dimension)`, rows of unit length. A row is
    meaningless if no token of the text is pooled; callers refuse such texts.
    """
    total = sum(tensor.nbytes for tensor in opened.tensors.values())
    done = 0

    def used(count: int) -> None:
        nonlocal done
        done += count
        progress("writing", done, total)

    # If matrices are converted, the few unchanged tensors are not worth a link to whole files.
    link = link and precision != nbits.PRECISION and opened.types == {COMPUTE[precision]}

    def write(graph: StreamedGraph, layout: type[Layout], path: Path) -> None:
        inputs = layout(graph, opened.config)
        hidden = decoder(inputs, opened.tensors, opened.prefix, opened.only_last)
        graph.save(opened.head(inputs, hidden), OUTPUT, ("batch", opened.dimension), path)

    with DataFile(model.with_name(f"{model.name}.data")) as data:
        graph = StreamedGraph(_OPSET, precision, data, link, used)
        write(graph, CpuPacked, model)
        links = dict(graph.links)
        if cuda is not None and (inputs := cuda_layout(opened.config, precision)):
            kind = _cuda_compute(opened.config, precision)
            second = StreamedGraph(_OPSET, precision, data, link, cuda=kind)
            write(second, Varlen if inputs == "varlen" else CudaPacked, cuda)
            links |= second.links
    return Written(links, data.sha256)


def _cuda_compute(config: DecoderConfig, precision: str) -> ir.DataType:
    """Return the type in which CUDA multiplies matrices."""
    kind = CUDA_COMPUTE[precision]
    if kind == ir.DataType.FLOAT16 and not config.fp16:
        return ir.DataType.BFLOAT16
    return kind


Steps = tuple[Dense | None, ...]


def sentence_decoder(
    opened: DecoderCheckpoint, pooling: str, steps: Steps, dimension: int
) -> DecoderModel:
    """Return the model of an opened decoder, whose vectors keep the first `dimension` numbers."""
    return DecoderModel(
        opened.folder,
        opened.settings.config,
        opened.tensors,
        opened.prefix,
        dimension,
        partial(_head, pooling, steps, dimension),
        only_last=pooling == "lasttoken",
    )


def _head(pooling: str, steps: Steps, dimension: int, layout: Layout, hidden: ir.Value) -> ir.Value:
    """Add the pooling, the steps after it and the cut, as a `Head`."""
    graph = layout.graph
    vectors = hidden if pooling == "lasttoken" else layout.mean(hidden, FLOAT)
    width = layout.config.hidden_size
    for number, step in enumerate(steps):
        if step is None:
            vectors = unit_length(graph, vectors)
            continue
        weight = graph.array(f"dense.{number}.weight", step.weight, FLOAT)
        bias = graph.array(f"dense.{number}.bias", step.bias, FLOAT)
        vectors = graph.op("Gemm", vectors, weight, bias, transB=1)
        if step.activation:
            vectors = graph.op(step.activation, vectors)
        width = len(step.bias)
    if dimension < width:
        vectors = graph.op("Slice", vectors, graph.ints(0), graph.ints(dimension), graph.ints(1))
    elif steps and steps[-1] is None:
        return vectors  # the last step normalised them
    return unit_length(graph, vectors)
