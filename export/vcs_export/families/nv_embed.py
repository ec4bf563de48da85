"""From NV-Embed-v2's own files to a bundle that holds its embedder.

The model is a Mistral whose tokens see each other in both directions (`graph.decoder`), pooled by trained
latents (`graph.latent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from vcs_export.checkpoint.nv_embed import open_nv_embed
from vcs_export.checkpoint.recipe import NvEmbedRecipe
from vcs_export.checkpoint.tokenizer_file import checked_tokenizer
from vcs_export.checkpoint.transformer import TOKENIZER
from vcs_export.checks.measuring import Report, unreported
from vcs_export.families.streamed_bundle import Quantization, TextSettings, Tokens, build_streamed_bundle
from vcs_export.graph.nv_embed import nv_embed_model
from vcs_export.write import LICENCES, BundleInfo, Progress, plain_name, real_name, silent
from vcs_runtime.bundle.manifest import SegmenterSpec


def build_nv_embed_bundle(
    checkpoint: Path,
    target: Path,
    info: BundleInfo,
    quantization: Quantization = Quantization(),
    *,
    text: TextSettings = TextSettings(),
    target_runtime: str = "ort",
    weights: str = "link",
    segmenter: SegmenterSpec | None = None,
    sha256: Mapping[str, str] | None = None,
    progress: Progress = silent,
    report: Report = unreported,
) -> Path:
    """Build a bundle from the folder of an NV-Embed model.

    The bundle's bytes follow from the arguments alone, except for the folded latents, which also depend on
    the order in which this machine sums.
    """
    opened = open_nv_embed(checkpoint)
    special = dict(zip(("<s>", "</s>"), opened.special, strict=True))
    tokenizer = checked_tokenizer(checkpoint / TOKENIZER, opened.decoder.vocab_size, special)
    before, after = opened.special
    return build_streamed_bundle(
        nv_embed_model(opened),
        Tokens(tokenizer, ((before,), (after,)), mask_instruction=True),
        target,
        info,
        quantization,
        text=text,
        target_runtime=target_runtime,
        weights=weights,
        segmenter=segmenter,
        sha256=sha256,
        progress=progress,
        report=report,
    )


def build_from_recipe(
    recipe: NvEmbedRecipe,
    checkpoint: Path,
    target: Path,
    quantization: Quantization = Quantization(),
    *,
    target_runtime: str = "ort",
    weights: str = "link",
    own_weights: bool = False,
    replace: bool = False,
    progress: Progress = silent,
    report: Report = unreported,
) -> Path:
    """Build a bundle from a checkpoint as a recipe says.

    A checkpoint with the recipe's settings must be the published one, byte for byte, unless `own_weights` is
    set. Own weights, and models of other sizes, are named after their folder.
    """
    opened = open_nv_embed(checkpoint)
    settings = asdict(opened.decoder) | asdict(opened.latent)
    expected = {**recipe.config, **recipe.latent}
    published = not own_weights and all(settings[key] == value for key, value in expected.items())
    info = BundleInfo(
        recipe.name if published else plain_name(checkpoint),
        recipe.licence,
        recipe.source if published else real_name(checkpoint),
        {f"{LICENCES}/{recipe.licence}.txt": recipe.notice.encode()},
        replace,
    )
    max_tokens = min(recipe.max_tokens, opened.decoder.max_position_embeddings)
    return build_nv_embed_bundle(
        checkpoint,
        target,
        info,
        quantization,
        text=TextSettings(recipe.instruction, max_tokens, recipe.long_text),
        target_runtime=target_runtime,
        weights=weights,
        sha256=recipe.sha256 if published else None,
        progress=progress,
        report=report,
    )
