"""From NV-Embed-v2's own files to a bundle that holds its embedder.

The model is a Mistral whose tokens see each other in both directions (`graph.decoder`), pooled by trained
latents (`graph.nv_embed`).
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from vcs_export.checkpoint.nv_embed import open_nv_embed
from vcs_export.checkpoint.recipe import NvEmbedRecipe
from vcs_export.checkpoint.tokenizer_file import checked_tokenizer
from vcs_export.checkpoint.transformer import TOKENIZER
from vcs_export.families.build import Build
from vcs_export.families.streamed_bundle import TextSettings, Tokens, build_streamed_bundle
from vcs_export.graph.nv_embed import nv_embed_model


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
