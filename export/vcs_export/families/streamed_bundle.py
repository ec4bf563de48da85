"""From an opened decoder to a bundle that holds its embedder; no PyTorch, no weights in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vcs_export.checkpoint.transformer import TOKENIZER
from vcs_export.checks.quantization_error import (
    Measuring,
    calibrate,
    calibration_texts,
    check_quantization_error,
    demo_texts,
    embedder_quantization_error,
)
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import CUDA_FILE, MODEL_FILE, TARGETS, TOKENIZER_FILE, WEIGHTS_FILE, Build
from vcs_export.graph.decoder_model import QUANTISED, DecoderModel, Written, cuda_layout, write_decoder_model
from vcs_export.graph.streamed import COMPUTE
from vcs_export.quantization import fp8
from vcs_export.write import BundleWriter, hash_files
from vcs_runtime.bundle.integrity import link, unlink
from vcs_runtime.bundle.manifest import (
    CudaGraph,
    EmbedderSpec,
    LongTextPolicy,
    QuantizationErrorStats,
    SegmenterSpec,
)


@dataclass(frozen=True)
class TextSettings:
    """How texts are fed to an embedder."""

    instruction: str = ""
    max_tokens: int | None = None  # None: as many as the model has positions
    long_text: LongTextPolicy = "truncate"


@dataclass(frozen=True)
class Tokens:
    """How a model's texts become tokens."""

    tokenizer: bytes
    special: tuple[tuple[int, ...], tuple[int, ...]] | None  # before and after a text; None: the tokenizer's
    mask_instruction: bool = False  # its tokens are not pooled


def build_streamed_bundle(
    build: Build, model: DecoderModel, tokens: Tokens, text: TextSettings = TextSettings()
) -> Path:
    """Build a bundle of an opened model. Its bytes follow from the arguments and the checkpoint."""
    precision = build.quantization.precision or ("fp16" if model.config.fp16 else "fp32")
    if precision in QUANTISED and build.target_runtime != "ort":
        raise ExportError(f"{precision} uses an operator of ONNX Runtime's own: TensorRT cannot run it")
    positions = model.config.max_position_embeddings
    max_tokens = text.max_tokens or positions
    if not 3 <= max_tokens <= positions:
        raise ExportError(f"max_tokens must be 3 to {positions}, not {max_tokens}")
    if not model.config.fp16 and COMPUTE[precision] == COMPUTE["fp16"]:
        raise ExportError(
            f"precision {precision}: the numbers of this model do not fit into float16: use bf16 on a GPU, "
            "fp32, or int8"
        )
    inputs, layout = cuda_layout(model.config, precision), TARGETS[build.target_runtime]
    with BundleWriter(build.target, build.info) as bundle:
        cuda = bundle.file(CUDA_FILE) if inputs else None
        known = _compared(build, model)
        bundle.file(TOKENIZER_FILE).write_bytes(tokens.tokenizer)
        spec = partial(
            EmbedderSpec, name=build.info.name, model=MODEL_FILE, tokenizer=TOKENIZER_FILE,
            dimension=model.dimension, max_tokens=max_tokens, long_text=text.long_text, precision=precision,
            layout=layout, cuda=CudaGraph(CUDA_FILE, inputs) if inputs else None,
            instruction=text.instruction, mask_instruction=tokens.mask_instruction,
            special_tokens=tokens.special,
        )  # fmt: skip
        if precision in QUANTISED:
            written, error = _write_quantised(build, model, bundle, spec(weights=(WEIGHTS_FILE,)), cuda)
            embedder = spec(weights=(WEIGHTS_FILE,), quantization_error=error)
        else:
            path, linked = bundle.file(MODEL_FILE), build.weights == "link"
            written = write_decoder_model(model, path, precision, layout, linked, build.progress, cuda=cuda)
            for file, real in written.links.items():
                bundle.link(real, f"embedder/{file}")
            links = (f"embedder/{file}" for file in sorted(written.links))
            embedder = spec(weights=(*links, WEIGHTS_FILE))
        # The tokenizer is rewritten, so its hash is another now.
        hashed = {f"embedder/{file}": known[file] for file in written.links if file in known}
        return bundle.commit(
            embedder=embedder,
            segmenter=SegmenterSpec(build.rules) if build.rules else None,
            known=hashed | {WEIGHTS_FILE: written.sha256},
            progress=build.progress,
        )


def _write_quantised(
    build: Build, opened: DecoderModel, bundle: BundleWriter, spec: EmbedderSpec, cuda: Path | None
) -> tuple[Written, QuantizationErrorStats]:
    """Write the quantised graph and measure its error against an unquantised one."""
    quantization, precision, model = build.quantization, spec.precision, bundle.file(MODEL_FILE)
    measuring = Measuring(quantization.device, precision, build.report)
    is_fp8 = precision == fp8.PRECISION
    with _unquantised(opened, bundle, spec.layout, watch=is_fp8) as (exact, watched):
        ranges = None
        if is_fp8:
            texts = quantization.calibration or calibration_texts()
            ranges = measuring.run(
                partial(calibrate, exact, watched, bundle.folder / TOKENIZER_FILE, spec, texts)
            )
        written = write_decoder_model(
            opened, model, precision, spec.layout, False, build.progress, cuda=cuda, ranges=ranges
        )
        texts = quantization.texts or demo_texts()
        error = measuring.run(partial(embedder_quantization_error, exact, bundle.folder, spec, texts))
    check_quantization_error(error, precision, quantization.least_cosine, quantization.most_change)
    return written, error


def _compared(build: Build, opened: DecoderModel) -> Mapping[str, str]:
    """Hash the checkpoint's files, by name, and refuse any that differs from the published one."""
    if build.sha256 is None:
        return {}
    names = {tensor.shard for tensor in opened.tensors.values()} | {TOKENIZER}
    names |= {name for name in build.sha256 if (opened.folder / name).is_file()}  # such as dense layers'
    known = hash_files({name: opened.folder / name for name in sorted(names)}, build.progress)
    for name, digest in known.items():
        if build.sha256.get(name) != digest:
            raise CheckpointError(
                f"{opened.folder / name}: is not the published file of {build.info.source}: damaged, or else "
                "weights of your own (--own-weights)"
            )
    return known


@contextmanager
def _unquantised(
    opened: DecoderModel, bundle: BundleWriter, layout: str, watch: bool
) -> Iterator[tuple[Path, Sequence[str]]]:
    """Yield the path of a graph without quantisation, which is there for now, and its watched weights."""
    # float16 has more digits than bfloat16, and takes half the space of float32.
    narrow = COMPUTE["fp32"] not in opened.types and opened.config.fp16
    precision = "fp16" if narrow else "fp32"
    # In the unfinished bundle, since what a killed process leaves of that is removed one day.
    with tempfile.TemporaryDirectory(prefix=".exact-", dir=bundle.folder) as work:
        exact = Path(work, "model.onnx")
        written = write_decoder_model(opened, exact, precision, layout, link=True, watch=watch)
        try:
            for name, real in written.links.items():
                link(real, exact.with_name(name))
        except OSError:  # another file system: the tensors must be copied
            exact = Path(work, "copy.onnx")
            written = write_decoder_model(opened, exact, precision, layout, link=False, watch=watch)
        yield exact, written.watched
        for name in written.links:
            unlink(exact.with_name(name))
