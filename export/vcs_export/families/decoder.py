"""From the folder of a decoder that embeds texts to a bundle: Qwen, Llama, Gemma and their like.

The folder is sentence-transformers' or transformers' own. `checkpoint.decoders` reads what the graph must do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vcs_export.checkpoint.decoders.opening import DecoderCheckpoint, open_decoder
from vcs_export.checkpoint.recipe import DecoderRecipe
from vcs_export.checkpoint.sentence_folder import (
    SentenceFolder,
    sentence_tokenizer,
)
from vcs_export.checkpoint.transformer import CONFIG, TOKENIZER
from vcs_export.checks.measuring import Report, unreported
from vcs_export.checks.special_tokens import NO_TOKEN, special_tokens
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.options import EmbedderOptions, folder_or_plain
from vcs_export.families.streamed_bundle import (
    Quantization,
    TextSettings,
    Tokens,
    build_streamed_bundle,
)
from vcs_export.graph.sentence_decoder import sentence_decoder
from vcs_export.write import BundleInfo, Progress, licence_file, plain_name, real_name, silent
from vcs_runtime.bundle.manifest import LongTextPolicy, SegmenterSpec

POOLINGS = {"mean": "mean", "last": "lasttoken"}
"""Poolings of decoders by the names of the command, as sentence-transformers names them."""
ATTENTIONS = {"causal": True, "bidirectional": False}
"""Whether a token sees only the tokens before it, by the names of the command."""


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(EmbedderOptions):
    """What a caller decides about a decoder. None stands for what its folder or its recipe says."""

    pooling: str | None = None
    end_token: str | None = None
    causal: bool | None = None
    long_text: LongTextPolicy = "truncate_text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in (None, *POOLINGS.values()):
            raise ExportError(f"pooling must be one of {', '.join(POOLINGS.values())}, not {self.pooling!r}")


def build_decoder_bundle(
    checkpoint: Path,
    target: Path,
    info: BundleInfo,
    quantization: Quantization = Quantization(),
    options: DecoderOptions = DecoderOptions(),
    *,
    target_runtime: str = "ort",
    weights: str = "link",
    segmenter: SegmenterSpec | None = None,
    sha256: Mapping[str, str] | None = None,
    progress: Progress = silent,
    report: Report = unreported,
) -> Path:
    """Build a bundle from the folder of a decoder. Its bytes follow from the folder and the arguments."""
    opened = open_decoder(checkpoint, options.causal)
    config = opened.settings.config
    sentence = _sentence(opened, options)
    dimension = options.vector_length(sentence)
    max_tokens = options.window(checkpoint, sentence, config.max_position_embeddings)
    # Rotations of positions that no text reaches would only take space.
    config = replace(config, max_position_embeddings=max_tokens)
    opened = replace(opened, settings=replace(opened.settings, config=config))
    return build_streamed_bundle(
        sentence_decoder(opened, sentence.pooling, sentence.steps, dimension),
        _tokens(opened, sentence, options),
        target,
        info,
        quantization,
        text=TextSettings(sentence.instruction, max_tokens, options.long_text),
        target_runtime=target_runtime,
        weights=weights,
        segmenter=segmenter,
        sha256=sha256,
        progress=progress,
        report=report,
    )


def _sentence(opened: DecoderCheckpoint, options: DecoderOptions) -> SentenceFolder:
    """Return what follows the decoder, by the folder, its `config.json` and the caller."""
    folder, hidden = opened.folder, opened.settings.config.hidden_size
    own = opened.settings.pooling
    sentence = folder_or_plain(folder, hidden, own or options.pooling, options.prompt, options.instruction)
    if options.pooling not in (None, sentence.pooling):
        raise CheckpointError(f"{folder}: the pooling is {sentence.pooling}, not {options.pooling}")
    if sentence.pooling not in POOLINGS.values():
        raise CheckpointError(
            f"{folder}: the pooling {sentence.pooling} of a decoder is not supported, only "
            f"{', '.join(POOLINGS.values())}"
        )
    return sentence


def _tokens(opened: DecoderCheckpoint, sentence: SentenceFolder, options: DecoderOptions) -> Tokens:
    """Return the tokenizer and its special tokens."""
    folder, settings = opened.folder, opened.settings
    content, tokenizer = sentence_tokenizer(folder, sentence, settings.config.vocab_size)
    before, after = special_tokens(folder, tokenizer, options.end_token or settings.end_token)
    if settings.needs_end and sentence.pooling == "lasttoken" and not after and options.end_token != NO_TOKEN:
        raise CheckpointError(
            f"{folder / TOKENIZER}: it puts no token after a text, but this family of models pools one: old "
            f"file? Name the token, or {NO_TOKEN} (--end-token)"
        )
    return Tokens(content, (before, after))


def build_from_recipe(
    recipe: DecoderRecipe,
    checkpoint: Path,
    target: Path,
    quantization: Quantization = Quantization(),
    options: DecoderOptions = DecoderOptions(),
    *,
    target_runtime: str = "ort",
    weights: str = "link",
    own_weights: bool = False,
    replace_target: bool = False,
    progress: Progress = silent,
    report: Report = unreported,
) -> Path:
    """Build a bundle from a checkpoint as a recipe says.

    The checkpoint must have the recipe's settings and, unless `own_weights` is set, its files. Own weights
    are named after their folder.
    """
    causal = recipe.config.get("causal")
    for argument, wanted, published in (
        ("attention", options.causal, causal),
        ("pooling", options.pooling, recipe.pooling),
    ):
        if wanted is not None and published not in (None, wanted):
            raise ExportError(f"{argument} contradicts the recipe of {recipe.source}: leave out one of them")
    own = options.prompt is not None or options.instruction is not None
    options = replace(
        options,
        pooling=recipe.pooling or options.pooling,
        instruction=options.instruction if own else recipe.instruction,
        end_token=options.end_token or recipe.end_token or None,
        causal=options.causal if causal is None else bool(causal),
    )
    positions = _check_recipe(recipe, checkpoint, options)
    info = BundleInfo(
        plain_name(checkpoint) if own_weights else recipe.name,
        recipe.licence,
        real_name(checkpoint) if own_weights else recipe.source,
        licence_file(recipe.licence, recipe.notice.encode() or recipe.licence_text),
        replace_target,
    )
    return build_decoder_bundle(
        checkpoint,
        target,
        info,
        quantization,
        replace(options, max_tokens=options.max_tokens or min(recipe.max_tokens, positions)),
        target_runtime=target_runtime,
        weights=weights,
        sha256=recipe.sha256 if recipe.sha256 and not own_weights else None,
        progress=progress,
        report=report,
    )


def _check_recipe(recipe: DecoderRecipe, checkpoint: Path, options: DecoderOptions) -> int:
    """Refuse another model than the recipe's, and vectors that its publisher does not allow.

    Return the number of the model's positions.
    """
    opened = open_decoder(checkpoint, options.causal)
    config = opened.settings.config
    recipe.check_config(checkpoint / CONFIG, config)
    sentence = _sentence(opened, options)
    if (dense := sum(step is not None for step in sentence.steps)) != recipe.dense:
        raise CheckpointError(
            f"{checkpoint}: is not {recipe.source}: it has {dense} dense layers, not {recipe.dense}"
        )
    recipe.check_dimension(options.vector_length(sentence), sentence.dimension)
    return config.max_position_embeddings
