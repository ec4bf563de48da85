"""From NV-Embed-v2's own files to a bundle that holds its embedder; no PyTorch, no weights in memory.

A Mistral whose tokens see each other in both directions (`graph.decoder`), pooled by trained latents
(`graph.latent`).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from vcs_export.checkpoint.decoder import DecoderConfig, decoder_config, decoder_shapes
from vcs_export.checkpoint.recipe import NvEmbedRecipe
from vcs_export.checkpoint.safetensors_reader import (
    Progress,
    StoredTensor,
    open_shards,
    silent,
)
from vcs_export.checkpoint.transformer import (
    CONFIG,
    TOKENIZER,
    checked_tokenizer,
    only,
    positive,
    read_json,
    value,
)
from vcs_export.checks.calibration import calibrate, calibration_texts
from vcs_export.checks.quantization_error import check_loss, demo_texts, embedding_loss
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.graph.attention_layouts import LAYOUTS, OPSETS
from vcs_export.graph.decoder import decoder
from vcs_export.graph.latent import LatentConfig, latent_pooling, latent_shapes
from vcs_export.graph.streamed import COMPUTE, DataFile, LargeGraph
from vcs_export.quantization import fp8
from vcs_export.quantization.nbits import BITS
from vcs_export.write import LICENCES, BundleWriter, hash_files
from vcs_runtime.bundle.manifest import EmbedderSpec, InputLayout, LongTextPolicy, SegmenterSpec

PRECISIONS = tuple(COMPUTE)
LOSSY = (*BITS, fp8.PRECISION)
"""Precisions whose loss is measured."""
TARGETS: dict[str, InputLayout] = {"ort": "packed", "tensorrt": "masked"}
"""For which engine a graph is written, and the layout of its inputs."""
WEIGHTS_MODES = ("link", "copy")

MODEL_FILE = "embedder/model.onnx"
WEIGHTS_FILE = "embedder/model.onnx.data"
TOKENIZER_FILE = "embedder/tokenizer.json"
OUTPUT = "embedding"

_DECODER = "embedding_model."
# What the latent part is without settings: the published config.json has none.
_LATENT_DEFAULTS = {
    "num_latents_value": 512,
    "num_cross_heads": 8,
    "cross_dim_head": 4096,
    "hidden_dim": 4096,
    "latent_dim": 4096,
}


@dataclass(frozen=True)
class NvEmbed:
    """An opened checkpoint: settings, tensors by name, and the ids that frame a text."""

    folder: Path
    decoder: DecoderConfig
    latent: LatentConfig
    frame: tuple[int, int]
    tensors: Mapping[str, StoredTensor]


def open_nv_embed(folder: Path) -> NvEmbed:
    """Open the checkpoint in `folder`; only settings and headers are read.

    Raises CheckpointError naming the file and what is wrong in it: a file is missing or unreadable, a
    setting has a value that the graph does not implement, a tensor is missing or has another shape or type.
    """
    path = folder / CONFIG
    data = read_json(path)
    for key, wanted in (
        ("model_type", "nvembed"),
        ("padding_side", "right"),
        ("add_eos", True),
        ("is_mask_instruction", True),
        ("mask_type", "b"),
    ):
        only(path, data, key, wanted, None if key == "model_type" else wanted)
    text = data.get("text_config")
    only(path, text, "model_type", "bidir_mistral", None)
    settings = decoder_config(path, text, causal=False)
    latent = _latent_config(path, data.get("latent_attention_config"), settings.hidden_size)
    shapes = decoder_shapes(settings, _DECODER) | latent_shapes(latent)
    frame = tuple(_token(path, text, key) for key in ("bos_token_id", "eos_token_id"))
    return NvEmbed(folder, settings, latent, (frame[0], frame[1]), open_shards(folder, shapes))


def build_nv_embed_bundle(
    checkpoint: Path,
    target: Path,
    *,
    name: str,
    licence: str,
    source: str,
    precision: str = "fp16",
    target_runtime: str = "ort",
    weights: str = "link",
    instruction: str = "",
    max_tokens: int | None = None,
    long_text: LongTextPolicy = "truncate",
    texts: Sequence[str] = (),
    calibration: Sequence[str] = (),
    least_cosine: float | None = None,
    segmenter: SegmenterSpec | None = None,
    extra_files: Mapping[str, bytes] | None = None,
    replace: bool = False,
    sha256: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> Path:
    """Build the bundle `target` from the NV-Embed folder `checkpoint`; returns `target`.

    name            of the bundle and of its embedder, as signatures print it
    licence         SPDX identifier of the weights;  source  where they came from, in words
    precision       of matrices: one of `PRECISIONS`. Norms, sums of layers and pooling are float32. int8 is
                    8 bits a weight with a scale for 128 of them; int4, likewise, is experimental; fp8 rounds
                    matrices and what they are multiplied with, and is for TensorRT
    target_runtime  "ort": for ONNX Runtime on CUDA and CPU; "tensorrt": for TensorRT, runs on a CPU too
    weights         "link": tensors that are used as they are stay in the checkpoint's files, of which the
                    bundle gets hard links; "copy": the bundle gets bytes of its own
    instruction     put before a text where the caller names none;  max_tokens  of a text, `<s>` and `</s>`
                    included (None: as many positions as there are);  long_text  as in `EmbedderSpec`
    texts           for int8, int4 and fp8: what is lost is measured on them and stands in the bundle; by
                    default the texts of `vcs-runtime demo`
    calibration     for fp8: texts on which the ranges of a matrix's inputs are measured; by default our own
    least_cosine    the bundle is refused where the mean cosine to unquantised vectors is less; None:
                    `loss.LEAST_COSINES`
    segmenter       rules that cut texts;  extra_files  further files by their path in the bundle
    replace         replace a bundle that is there
    sha256          what the checkpoint's tensor files and tokenizer must be, by name; None: whatever they are
    progress        told how far writing and hashing are, in bytes

    The bundle's bytes follow from the arguments alone (the folded latents: and from how this machine sums).
    Raises CheckpointError, BundleExistsError, ExportError.
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise ExportError(f"name {name!r} must be letters, digits, '.', '_' and '-'")
    for key, given, allowed in (
        ("precision", precision, PRECISIONS),
        ("target_runtime", target_runtime, tuple(TARGETS)),
        ("weights", weights, WEIGHTS_MODES),
    ):
        if given not in allowed:
            raise ExportError(f"{key} must be one of {', '.join(allowed)}, not {given!r}")
    if precision in BITS and target_runtime != "ort":
        raise ExportError(f"{precision} uses an operator of ONNX Runtime's own: TensorRT cannot run it")
    if precision == fp8.PRECISION and target_runtime != "tensorrt":
        raise ExportError(f"{precision} is for TensorRT, which alone multiplies in it: --target tensorrt")
    if least_cosine is not None and not -1 <= least_cosine <= 1:
        raise ExportError(f"least_cosine must be -1 to 1, not {least_cosine}")
    opened = open_nv_embed(checkpoint)
    positions = opened.decoder.max_position_embeddings
    if not 3 <= (max_tokens or positions) <= positions:
        raise ExportError(f"max_tokens must be 3 to {positions}, not {max_tokens}")
    special = dict(zip(("<s>", "</s>"), opened.frame, strict=True))
    words = checked_tokenizer(checkpoint / TOKENIZER, opened.decoder.vocab_size, special)
    layout = TARGETS[target_runtime]
    with BundleWriter(target, replace) as bundle:
        known = _compared(opened, sha256, source, progress) if sha256 is not None else {}
        bundle.file(TOKENIZER_FILE).write_bytes(words)
        for path, content in (extra_files or {}).items():
            bundle.file(path).write_bytes(content)
        spec = EmbedderSpec(
            name=name,
            model=MODEL_FILE,
            weights=(WEIGHTS_FILE,),
            tokenizer=TOKENIZER_FILE,
            dimension=opened.decoder.hidden_size,
            max_tokens=max_tokens or positions,
            long_text=long_text,
            precision=precision,
            layout=layout,
            instruction=instruction,
            mask_instruction=True,
            special_tokens=((opened.frame[0],), (opened.frame[1],)),
        )
        model = bundle.file(MODEL_FILE)
        if precision in LOSSY:
            with _exact(opened, bundle, layout, watch=precision == fp8.PRECISION) as (exact, watched):
                ranges = None
                if precision == fp8.PRECISION:
                    words_file = bundle.folder / TOKENIZER_FILE
                    ranges = calibrate(exact, watched, words_file, spec, calibration or calibration_texts())
                written = write_nv_embed(opened, model, precision, layout, False, progress, ranges=ranges)
                loss = embedding_loss(exact, bundle.folder, spec, texts or demo_texts())
            check_loss(loss, precision, least_cosine)
            spec = structs.replace(spec, quantization_error=loss)
        else:
            written = write_nv_embed(opened, model, precision, layout, weights == "link", progress)
            for file, real in written.links.items():
                bundle.link(real, f"embedder/{file}")
            links = (f"embedder/{file}" for file in sorted(written.links))
            spec = structs.replace(spec, weights=(*links, WEIGHTS_FILE))
        # The tokenizer is written anew, so its hash is another now.
        hashed = {f"embedder/{file}": known[file] for file in written.links if file in known}
        return bundle.commit(
            name=name,
            licence=licence,
            source=source,
            embedder=spec,
            segmenter=segmenter,
            known=hashed | {WEIGHTS_FILE: written.sha256},
            progress=progress,
        )


@dataclass(frozen=True)
class Written:
    """What a graph refers to: checkpoint files by name, and the data file beside it, by its sha256.

    watched  the weights whose inputs' ranges are the graph's second output, in its order
    """

    links: Mapping[str, Path]
    sha256: str
    watched: Sequence[str] = ()


def write_nv_embed(
    opened: NvEmbed,
    model: Path,
    precision: str,
    layout: str,
    link: bool,
    progress: Progress = silent,
    *,
    ranges: fp8.Ranges | None = None,
    watch: bool = False,
) -> Written:
    """Write the graph to `model`, and what it does not link to into `model` + ".data".

    The inputs are those of `layout` (`graph.layout`), the output `embedding`, float32 `(batch, hidden)`, rows
    of unit length: without meaning for a text of which nothing is pooled, which a caller refuses.
    `ranges` and `watch` are for FP8, as in `LargeGraph`.
    Raises CheckpointError, OSError.
    """
    total = sum(tensor.nbytes for tensor in opened.tensors.values())
    done = 0

    def used(count: int) -> None:
        nonlocal done
        done += count
        progress("writing", done, total)

    # Where matrices are converted, what is left to share is not worth a link to whole files.
    link = (
        link and precision not in LOSSY and {t.type for t in opened.tensors.values()} == {COMPUTE[precision]}
    )
    with DataFile(model.with_name(f"{model.name}.data")) as data:
        graph = LargeGraph(OPSETS[layout], precision, data, link, used, ranges=ranges, watch=watch)
        inputs = LAYOUTS[layout](graph, opened.decoder)
        hidden = decoder(inputs, opened.tensors, _DECODER)
        embedding = latent_pooling(inputs, opened.latent, opened.tensors, hidden)
        graph.save(embedding, OUTPUT, ("batch", opened.decoder.hidden_size), model)
    return Written(graph.links, data.sha256, tuple(graph.watched))


def _latent_config(path: Path, data: Any, hidden: int) -> LatentConfig:
    given = {} if data is None else data
    only(path, given, "output_normalize", True, True)
    settings = {
        key: positive(path, {key: default, **given}, key) for key, default in _LATENT_DEFAULTS.items()
    }
    for key in ("hidden_dim", "latent_dim"):
        if settings[key] != hidden:
            raise CheckpointError(
                f"{path}: {key} {settings[key]} of the latent part is not the hidden_size {hidden}"
            )
    del settings["latent_dim"]
    return LatentConfig(**settings)


def _token(path: Path, data: Any, key: str) -> int:
    """A token id that the settings name."""
    if (found := value(path, data, key, int)) < 0:
        raise CheckpointError(f"{path}: {key} must not be negative, but is {found}")
    return found


def _compared(opened: NvEmbed, sha256: Mapping[str, str], source: str, progress: Progress) -> dict[str, str]:
    """The hashes of the checkpoint's files by name, after a comparison with what they must be."""
    names = sorted({tensor.shard for tensor in opened.tensors.values()} | {TOKENIZER})
    known = hash_files({name: opened.folder / name for name in names}, progress)
    for name, digest in known.items():
        if sha256.get(name) != digest:
            raise CheckpointError(
                f"{opened.folder / name}: is not the published file of {source}: damaged, or else "
                "weights of your own (--own-weights)"
            )
    return known


@contextmanager
def _exact(
    opened: NvEmbed, bundle: BundleWriter, layout: str, watch: bool
) -> Iterator[tuple[Path, Sequence[str]]]:
    """An unquantised graph, of the checkpoint's own precision, and its watched weights."""
    kinds = {tensor.type for tensor in opened.tensors.values()}
    precision = "fp16" if kinds == {COMPUTE["fp16"]} else "fp32"
    folder = bundle.target.parent
    with tempfile.TemporaryDirectory(prefix=f".{bundle.target.name}.exact-", dir=folder) as work:
        exact = Path(work, "model.onnx")
        written = write_nv_embed(opened, exact, precision, layout, link=True, watch=watch)
        try:
            for name, real in written.links.items():
                os.link(real, exact.with_name(name))
        except OSError:  # another file system: what is linked to must be written
            exact = Path(work, "copy.onnx")
            written = write_nv_embed(opened, exact, precision, layout, link=False, watch=watch)
        yield exact, written.watched


def build_from_recipe(
    recipe: NvEmbedRecipe,
    checkpoint: Path,
    target: Path,
    *,
    precision: str = "fp16",
    target_runtime: str = "ort",
    weights: str = "link",
    texts: Sequence[str] = (),
    calibration: Sequence[str] = (),
    least_cosine: float | None = None,
    own_weights: bool = False,
    replace: bool = False,
    progress: Progress = silent,
) -> Path:
    """Build the bundle `target` from `checkpoint` as the recipe says; returns `target`.

    A checkpoint of the recipe's size must be the published one, byte for byte, unless it is said to be the
    caller's own (`own_weights`). One's own, and models of other sizes, are named after their folder.
    Other arguments, and what is raised, as for `build_nv_embed_bundle`; CheckpointError names the file.
    """
    opened = open_nv_embed(checkpoint)
    settings = asdict(opened.decoder) | asdict(opened.latent)
    expected = {**recipe.config, **recipe.latent}
    published = not own_weights and all(settings[key] == wanted for key, wanted in expected.items())
    own = checkpoint.resolve().name
    return build_nv_embed_bundle(
        checkpoint,
        target,
        name=recipe.name if published else re.sub(r"[^A-Za-z0-9._-]+", "-", own),
        licence=recipe.licence,
        source=recipe.source if published else own,
        precision=precision,
        target_runtime=target_runtime,
        weights=weights,
        instruction=recipe.instruction,
        max_tokens=min(recipe.max_tokens, opened.decoder.max_position_embeddings),
        long_text=recipe.long_text,
        texts=texts,
        calibration=calibration,
        least_cosine=least_cosine,
        extra_files={f"{LICENCES}/{recipe.licence}.txt": recipe.notice.encode()},
        replace=replace,
        sha256=recipe.sha256 if published else None,
        progress=progress,
    )
