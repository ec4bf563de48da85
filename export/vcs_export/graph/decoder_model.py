"""The ONNX graphs of a whole embedding model: a decoder, and the head that makes a text's vector.

Their weights are streamed, or linked to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.attention_layouts import Layout, Masked
from vcs_export.graph.cpu_layouts import CpuPacked
from vcs_export.graph.cuda_layouts import CudaPacked, Varlen
from vcs_export.graph.decoder import decoder
from vcs_export.graph.streamed import COMPUTE, CUDA_COMPUTE, FLOAT, DataFile, StreamedGraph
from vcs_export.quantization import fp8
from vcs_export.quantization.nbits import BITS
from vcs_export.write import Progress, silent
from vcs_runtime.bundle.manifest import CudaLayout

PRECISIONS = tuple(COMPUTE)
QUANTISED = (*BITS, fp8.PRECISION)
"""Precisions whose quantisation error is measured."""
OUTPUT = "embedding"
LAYOUTS: dict[str, type[Layout]] = {"packed": CpuPacked, "masked": Masked}
OPSETS = {"packed": 24, "masked": 23, "varlen": 24}

Head = Callable[[Layout, ir.Value], ir.Value]
"""Adds what makes a text's vector, float32 `(batch, dimension)`, of the last hidden states."""


@dataclass(frozen=True)
class DecoderModel:
    """An embedding model whose checkpoint has been opened and checked."""

    folder: Path
    config: DecoderConfig
    tensors: Mapping[str, StoredTensor]  # by their names in the checkpoint, those of the head included
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
    watched: Sequence[str] = ()  # weights whose inputs' ranges are further outputs, in their order


def cuda_layout(config: DecoderConfig, precision: str) -> CudaLayout | None:
    """Return the input layout of the graph for CUDA; None where CUDA runs the same graph as a CPU."""
    kind = _cuda_compute(config, precision)
    if kind == FLOAT:
        return None
    # The kernel of "varlen" takes fp16 alone. It is not causal, and has no windows.
    packed = kind != ir.DataType.FLOAT16 or config.causal or config.local is not None
    return "packed" if packed else "varlen"


def write_decoder_model(
    opened: DecoderModel, model: Path, precision: str, layout: str, link: bool, progress: Progress = silent,
    *, cuda: Path | None = None, ranges: fp8.Ranges | None = None, watch: bool = False,
) -> Written:  # fmt: skip
    """Write the graph, and the tensors that it does not link to into `model` + ".data".

    With `link`, tensors that are used as they are stay in the checkpoint's files. A second graph, for CUDA,
    refers to the same files; it has its own operators and input layout, and may need few further tensors.
    For fp8, `ranges` are those of each weight's inputs. Raises CheckpointError or OSError.

    The output `embedding` is float32 `(batch, dimension)`, rows of unit length. A row is meaningless for a
    text of which no token is pooled; callers refuse such texts.
    """
    total = sum(tensor.nbytes for tensor in opened.tensors.values())
    done = 0

    def used(count: int) -> None:
        nonlocal done
        done += count
        progress("writing", done, total)

    # If matrices are converted, the tensors left to share are not worth a link to whole files.
    link = link and precision not in QUANTISED and opened.types == {COMPUTE[precision]}

    def write(graph: StreamedGraph, layout: type[Layout], path: Path) -> None:
        inputs = layout(graph, opened.config)
        hidden = decoder(inputs, opened.tensors, opened.prefix, opened.only_last)
        graph.save(opened.head(inputs, hidden), OUTPUT, ("batch", opened.dimension), path)

    scales = fp8.Scales(ranges) if ranges is not None else None
    with DataFile(model.with_name(f"{model.name}.data")) as data:
        graph = StreamedGraph(OPSETS[layout], precision, data, link, used, scales=scales, watch=watch)
        write(graph, LAYOUTS[layout], model)
        links = dict(graph.links)
        if cuda is not None and (inputs := cuda_layout(opened.config, precision)):
            kind = _cuda_compute(opened.config, precision)
            second = StreamedGraph(OPSETS[inputs], precision, data, link, scales=scales, cuda=kind)
            write(second, Varlen if inputs == "varlen" else CudaPacked, cuda)
            links |= second.links
    return Written(links, data.sha256, tuple(graph.watched))


def _cuda_compute(config: DecoderConfig, precision: str) -> ir.DataType:
    """Return the type in which CUDA multiplies matrices."""
    kind = CUDA_COMPUTE[precision]
    return ir.DataType.BFLOAT16 if kind == ir.DataType.FLOAT16 and not config.fp16 else kind
