"""From the folder of a decoder that embeds texts to a bundle: Qwen, Llama, Gemma and their like.

The folder comes from sentence-transformers or transformers. `checkpoint.decoders` reads the
settings of the graph. NV-Embed-v2 is a Mistral whose tokens see each other in both directions,
pooled by trained latents.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from vcs_export.checkpoint.decoders.opening import DecoderCheckpoint, open_decoder
from vcs_export.checkpoint.nv_embed import NvEmbedCheckpoint, open_nv_embed
from vcs_export.checkpoint.recipe import DecoderRecipe, NvEmbedRecipe
from vcs_export.checkpoint.sentence_folder import SentenceFolder, sentence_tokenizer
from vcs_export.checkpoint.transformer import CONFIG, TOKENIZER, checked_tokenizer
from vcs_export.checks.quantization_error import (
    Measuring,
    check_quantization_error,
    demo_texts,
    embedder_quantization_error,
)
from vcs_export.checks.special_tokens import NO_TOKEN, special_tokens
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import (
    CUDA_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    Build,
    EmbedderOptions,
    check_choice,
)
from vcs_export.graph.decoder_model import (
    DecoderModel,
    Written,
    cuda_layout,
    sentence_decoder,
    write_decoder_model,
)
from vcs_export.graph.nv_embed import nv_embed_model
from vcs_export.graph.streamed import COMPUTE
from vcs_export.quantization import nbits
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
    max_tokens: int | None = None  # None: the model's number of positions
    long_text: LongTextPolicy = "truncate"


@dataclass(frozen=True)
class Tokens:
    """How a model's texts become tokens."""

    tokenizer: bytes
    # Token ids before and after a text; None: the tokenizer's.
    special: tuple[tuple[int, ...], tuple[int, ...]] | None
    mask_instruction: bool = False  # the instruction's tokens are not pooled


def build_streamed_bundle(
    build: Build, model: DecoderModel, tokens: Tokens, text: TextSettings = TextSettings()
) -> Path:
    """Build a bundle of an opened model. Its bytes follow from the arguments and the checkpoint."""
    default = "fp16" if model.config.fp16 else "fp32"
    precision = build.quantization.precision or default
    positions = model.config.max_position_embeddings
    max_tokens = text.max_tokens or positions
    if not 3 <= max_tokens <= positions:
        raise ExportError(f"max_tokens must be 3 to {positions}, not {max_tokens}")
    if not model.config.fp16 and COMPUTE[precision] == COMPUTE["fp16"]:
        raise ExportError(
            f"precision {precision}: the numbers of this model do not fit into float16: use bf16 on"
            " a GPU, fp32, or int8"
        )
    inputs = cuda_layout(model.config, precision)
    with BundleWriter(build.target, build.info) as bundle:
        cuda = bundle.file(CUDA_FILE) if inputs else None
        known = _compared(build, model)
        bundle.file(TOKENIZER_FILE).write_bytes(tokens.tokenizer)
        spec = partial(
            EmbedderSpec,
            name=build.info.name,
            model=MODEL_FILE,
            tokenizer=TOKENIZER_FILE,
            dimension=model.dimension,
            max_tokens=max_tokens,
            long_text=text.long_text,
            precision=precision,
            layout="packed",
            cuda=CudaGraph(CUDA_FILE, inputs) if inputs else None,
            instruction=text.instruction,
            mask_instruction=tokens.mask_instruction,
            special_tokens=tokens.special,
        )
        if precision == nbits.PRECISION:
            written, error = _write_quantised(
                build, model, bundle, spec(weights=(WEIGHTS_FILE,)), cuda
            )
            embedder = spec(weights=(WEIGHTS_FILE,), quantization_error=error)
        else:
            path, linked = bundle.file(MODEL_FILE), build.weights == "link"
            written = write_decoder_model(model, path, precision, linked, build.progress, cuda=cuda)
            for file, real in written.links.items():
                bundle.link(real, f"embedder/{file}")
            links = (f"embedder/{file}" for file in sorted(written.links))
            embedder = spec(weights=(*links, WEIGHTS_FILE))
        # Files that need not be hashed again: the written weights, and linked files.
        hashed = {WEIGHTS_FILE: written.sha256}
        for file in written.links:
            if file in known:
                hashed[f"embedder/{file}"] = known[file]
        return bundle.commit(
            embedder=embedder,
            segmenter=SegmenterSpec(build.rules) if build.rules else None,
            known=hashed,
            progress=build.progress,
            prove=build.prove,
        )


def _write_quantised(
    build: Build, opened: DecoderModel, bundle: BundleWriter, spec: EmbedderSpec, cuda: Path | None
) -> tuple[Written, QuantizationErrorStats]:
    """Write the quantised graph and measure its error against an unquantised one."""
    quantization, precision, model = build.quantization, spec.precision, bundle.file(MODEL_FILE)
    measuring = Measuring(quantization.device, precision, build.report)
    with _unquantised(opened, bundle) as exact:
        written = write_decoder_model(opened, model, precision, False, build.progress, cuda=cuda)
        texts = quantization.texts or demo_texts()
        error = measuring.run(
            partial(embedder_quantization_error, exact, bundle.folder, spec, texts)
        )
    check_quantization_error(error, precision, quantization.least_cosine, quantization.most_change)
    return written, error


def _compared(build: Build, opened: DecoderModel) -> Mapping[str, str]:
    """Hash the checkpoint's files, by name, and refuse any that differs from the published one."""
    if build.sha256 is None:
        return {}
    names = {tensor.shard for tensor in opened.tensors.values()} | {TOKENIZER}
    # Further published files, such as those of dense layers.
    names |= {name for name in build.sha256 if (opened.folder / name).is_file()}
    known = hash_files({name: opened.folder / name for name in sorted(names)}, build.progress)
    for name, digest in known.items():
        if build.sha256.get(name) != digest:
            raise CheckpointError(
                f"{opened.folder / name} is not the published file of {build.info.source}: it is"
                " damaged, or has weights of your own (--own-weights accepts them)"
            )
    return known


@contextmanager
def _unquantised(opened: DecoderModel, bundle: BundleWriter) -> Iterator[Path]:
    """Yield the path of a temporary graph without quantisation."""
    # float16 has more digits than bfloat16, and takes half the space of float32.
    half = COMPUTE["fp32"] not in opened.types and opened.config.fp16
    precision = "fp16" if half else "fp32"
    # The graph is in the unfinished bundle, because the remains of a killed process are removed
    # from there by a later build.
    with tempfile.TemporaryDirectory(prefix=".exact-", dir=bundle.folder) as work:
        exact = Path(work, "model.onnx")
        written = write_decoder_model(opened, exact, precision, link=True)
        try:
            for name, real in written.links.items():
                link(real, exact.with_name(name))
        except OSError:  # another file system: the tensors must be copied
            exact = Path(work, "copy.onnx")
            written = write_decoder_model(opened, exact, precision, link=False)
        yield exact
        for name in written.links:
            unlink(exact.with_name(name))


POOLINGS = {"mean": "mean", "last": "lasttoken"}
"""Poolings of decoders by the names of the command, as sentence-transformers names them."""
ATTENTIONS = {"causal": True, "bidirectional": False}
"""Whether a token sees only the tokens before it, by the names of the command."""


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(EmbedderOptions):
    """The caller's choices for a decoder. None takes the value of the folder or of a recipe."""

    end_token: str | None = None  # closes each text
    causal: bool | None = None  # a token sees only the tokens before it
    long_text: LongTextPolicy = "truncate_text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling is not None:
            check_choice("pooling", self.pooling, POOLINGS.values())


def build_decoder_bundle(
    build: Build, options: DecoderOptions = DecoderOptions(), recipe: DecoderRecipe | None = None
) -> Path:
    """Build a bundle from the folder of a decoder.

    Its bytes follow from the folder and the arguments. With a recipe, the checkpoint must have the
    recipe's settings and, unless `build.own_weights` is true, its files.
    """
    folder = build.checkpoint
    options = _as_published(options, recipe) if recipe else options
    opened = open_decoder(folder, options.causal)
    config = opened.settings.config
    if recipe:
        recipe.check_config(folder / CONFIG, config)
    sentence = options.sentence(folder, config.hidden_size, opened.settings.pooling)
    if sentence.pooling not in POOLINGS.values():
        raise CheckpointError(
            f"{folder}: the pooling {sentence.pooling} of a decoder is not supported, only "
            f"{', '.join(POOLINGS.values())}"
        )
    if recipe and (dense := sum(step is not None for step in sentence.steps)) != recipe.dense:
        raise CheckpointError(
            f"{folder} is not {recipe.source}: it has {dense} dense layers, not {recipe.dense}"
        )
    dimension = options.vector_length(sentence)
    if recipe:
        recipe.check_dimension(dimension, sentence.dimension)
        most = min(recipe.max_tokens, config.max_position_embeddings)
        options = replace(options, max_tokens=options.max_tokens or most)
        build = _of_recipe(build, recipe, not build.own_weights)
    max_tokens = options.window(folder, sentence, config.max_position_embeddings)
    # Rotations of positions beyond the longest text would only take space.
    config = replace(config, max_position_embeddings=max_tokens)
    opened = replace(opened, settings=replace(opened.settings, config=config))
    model = sentence_decoder(opened, sentence.pooling, sentence.steps, dimension)
    text = TextSettings(sentence.instruction, max_tokens, options.long_text)
    return build_streamed_bundle(build, model, _tokens(opened, sentence, options), text)


def _of_recipe(build: Build, recipe: DecoderRecipe | NvEmbedRecipe, published: bool) -> Build:
    """Return the build with the recipe's names and, for published weights, its hashes."""
    sha256 = recipe.sha256 if published and recipe.sha256 else None
    return replace(build.of_recipe(recipe, published), sha256=sha256)


def _as_published(options: DecoderOptions, recipe: DecoderRecipe) -> DecoderOptions:
    """Return options with a recipe's values. Raises ExportError if they contradict the recipe."""
    causal = recipe.config.get("causal")
    for argument, wanted, published in (
        ("attention", options.causal, causal),
        ("pooling", options.pooling, recipe.pooling),
    ):
        if wanted is not None and published not in (None, wanted):
            raise ExportError(
                f"{argument} contradicts the recipe of {recipe.source}: leave out one of the two"
            )
    return replace(
        options.with_instruction(recipe.instruction),
        pooling=recipe.pooling or options.pooling,
        end_token=options.end_token or recipe.end_token or None,
        causal=options.causal if causal is None else bool(causal),
    )


def _tokens(opened: DecoderCheckpoint, sentence: SentenceFolder, options: DecoderOptions) -> Tokens:
    """Return the tokenizer and its special tokens."""
    folder, settings = opened.folder, opened.settings
    content, tokenizer = sentence_tokenizer(folder, sentence, settings.config.vocab_size)
    before, after = special_tokens(folder, tokenizer, options.end_token or settings.end_token)
    needs_end = settings.needs_end and sentence.pooling == "lasttoken"
    if needs_end and not after and options.end_token != NO_TOKEN:
        raise CheckpointError(
            f"{folder / TOKENIZER}: it adds no token after a text, but this family of models pools"
            f" the last token: give --end-token TOKEN or {NO_TOKEN}"
        )
    return Tokens(content, (before, after))


def build_nv_embed_bundle(
    build: Build, text: TextSettings = TextSettings(), recipe: NvEmbedRecipe | None = None
) -> Path:
    """Build a bundle from the folder of an NV-Embed model.

    A checkpoint with a recipe's settings must be the published one, byte for byte, unless
    `build.own_weights` is true. The bundle's bytes follow from the arguments alone, except for the
    folded latents, which also depend on the order in which this machine sums.
    """
    opened = open_nv_embed(build.checkpoint)
    if recipe:
        why = _difference(opened, recipe)
        if not why and build.own_weights:
            why = "weights of your own"
        build = _of_recipe(build, recipe, published=not why)
        if why:
            build.report(f"not {recipe.source} ({why}): named after its folder, {build.info.name}")
        max_tokens = min(recipe.max_tokens, opened.decoder.max_position_embeddings)
        text = TextSettings(recipe.instruction, max_tokens, recipe.long_text)
    before, after = opened.special
    special = {"<s>": before, "</s>": after}
    tokenizer = checked_tokenizer(build.checkpoint / TOKENIZER, opened.decoder.vocab_size, special)
    tokens = Tokens(tokenizer, ((before,), (after,)), mask_instruction=True)
    return build_streamed_bundle(build, nv_embed_model(opened), tokens, text)


def _difference(opened: NvEmbedCheckpoint, recipe: NvEmbedRecipe) -> str:
    """Return the first setting that differs from the recipe's, or ""."""
    settings = asdict(opened.decoder) | asdict(opened.latent)
    for key, expected in {**recipe.config, **recipe.latent}.items():
        if settings[key] != expected:
            return f"{key} is {settings[key]}, not {expected}"
    return ""
