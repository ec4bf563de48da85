"""From the folder of a decoder that embeds texts to a bundle: Qwen, Llama, Gemma and their like.

The folder is sentence-transformers' or transformers' own. `checkpoint.decoders` reads what the graph must do.
NV-Embed-v2 is a Mistral whose tokens see each other in both directions, pooled by trained latents.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vcs_export.checkpoint.decoders.opening import DecoderCheckpoint, open_decoder
from vcs_export.checkpoint.nv_embed import open_nv_embed
from vcs_export.checkpoint.recipe import DecoderRecipe, NvEmbedRecipe
from vcs_export.checkpoint.sentence_folder import SentenceFolder, sentence_tokenizer
from vcs_export.checkpoint.transformer import CONFIG, TOKENIZER, checked_tokenizer
from vcs_export.checks.special_tokens import NO_TOKEN, special_tokens
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import Build, EmbedderOptions, check_choice
from vcs_export.families.streamed_bundle import TextSettings, Tokens, build_streamed_bundle
from vcs_export.graph.decoder_model import sentence_decoder
from vcs_export.graph.nv_embed import nv_embed_model
from vcs_runtime.bundle.manifest import LongTextPolicy

POOLINGS = {"mean": "mean", "last": "lasttoken"}
"""Poolings of decoders by the names of the command, as sentence-transformers names them."""
ATTENTIONS = {"causal": True, "bidirectional": False}
"""Whether a token sees only the tokens before it, by the names of the command."""


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(EmbedderOptions):
    """What a caller decides about a decoder. None stands for what its folder or its recipe says."""

    end_token: str | None = None  # closes each text
    causal: bool | None = None  # a token sees only those before it
    long_text: LongTextPolicy = "truncate_text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling is not None:
            check_choice("pooling", self.pooling, POOLINGS.values())


def build_decoder_bundle(
    build: Build, options: DecoderOptions = DecoderOptions(), recipe: DecoderRecipe | None = None
) -> Path:
    """Build a bundle from the folder of a decoder. Its bytes follow from the folder and the arguments.

    With a recipe, the checkpoint must have its settings and, unless its weights are said to be own ones, its
    files.
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
            f"{folder}: is not {recipe.source}: it has {dense} dense layers, not {recipe.dense}"
        )
    dimension = options.vector_length(sentence)
    if recipe:
        recipe.check_dimension(dimension, sentence.dimension)
        most = min(recipe.max_tokens, config.max_position_embeddings)
        options = replace(options, max_tokens=options.max_tokens or most)
        build = build.of_recipe(recipe, build.own_weights)
        build = replace(build, sha256=None if build.own_weights else recipe.sha256 or None)
    max_tokens = options.window(folder, sentence, config.max_position_embeddings)
    # Rotations of positions that no text reaches would only take space.
    config = replace(config, max_position_embeddings=max_tokens)
    opened = replace(opened, settings=replace(opened.settings, config=config))
    model = sentence_decoder(opened, sentence.pooling, sentence.steps, dimension)
    text = TextSettings(sentence.instruction, max_tokens, options.long_text)
    return build_streamed_bundle(build, model, _tokens(opened, sentence, options), text)


def _as_published(options: DecoderOptions, recipe: DecoderRecipe) -> DecoderOptions:
    """Return options with what a recipe decides. Raises ExportError if they contradict it."""
    causal = recipe.config.get("causal")
    for argument, wanted, published in (
        ("attention", options.causal, causal),
        ("pooling", options.pooling, recipe.pooling),
    ):
        if wanted is not None and published not in (None, wanted):
            raise ExportError(f"{argument} contradicts the recipe of {recipe.source}: leave out one of them")
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
    if settings.needs_end and sentence.pooling == "lasttoken" and not after and options.end_token != NO_TOKEN:
        raise CheckpointError(
            f"{folder / TOKENIZER}: it puts no token after a text, but this family of models pools one: old "
            f"file? Name the token, or {NO_TOKEN} (--end-token)"
        )
    return Tokens(content, (before, after))


def build_nv_embed_bundle(
    build: Build, text: TextSettings = TextSettings(), recipe: NvEmbedRecipe | None = None
) -> Path:
    """Build a bundle from the folder of an NV-Embed model.

    A checkpoint with a recipe's settings must be the published one, byte for byte, unless its weights are
    said to be own ones. The bundle's bytes follow from the arguments alone, except for the folded latents,
    which also depend on the order in which this machine sums.
    """
    opened = open_nv_embed(build.checkpoint)
    if recipe:
        settings = asdict(opened.decoder) | asdict(opened.latent)
        expected = {**recipe.config, **recipe.latent}
        other = [f"{key} is {settings[key]}, not {n}" for key, n in expected.items() if settings[key] != n]
        own = build.own_weights or bool(other)
        build = replace(build.of_recipe(recipe, own), sha256=None if own else recipe.sha256 or None)
        if own:
            why = other[0] if other else "weights of your own"
            build.report(f"not {recipe.source} ({why}): named after its folder, {build.info.name}")
        max_tokens = min(recipe.max_tokens, opened.decoder.max_position_embeddings)
        text = TextSettings(recipe.instruction, max_tokens, recipe.long_text)
    before, after = opened.special
    special = {"<s>": before, "</s>": after}
    tokenizer = checked_tokenizer(build.checkpoint / TOKENIZER, opened.decoder.vocab_size, special)
    tokens = Tokens(tokenizer, ((before,), (after,)), mask_instruction=True)
    return build_streamed_bundle(build, nv_embed_model(opened), tokens, text)
