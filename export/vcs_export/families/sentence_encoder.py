"""From the folder of any sentence-transformers encoder to a bundle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.decoders.opening import FAMILIES as DECODERS
from vcs_export.checkpoint.encoders import FAMILIES, model_type, open_encoder
from vcs_export.checkpoint.modernbert import KIND, open_modernbert
from vcs_export.checkpoint.recipe import SentenceRecipe
from vcs_export.checkpoint.sentence_folder import (
    MODULES,
    SentenceFolder,
    check_width,
    read_sentence_folder,
    sentence_tokenizer,
)
from vcs_export.checkpoint.settings import positive, read_json
from vcs_export.checkpoint.transformer import CONFIG, Checkpoint
from vcs_export.checkpoint.xlm_roberta import PAD
from vcs_export.errors import CheckpointError
from vcs_export.families.bert import MODEL_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from vcs_export.families.optimum_route import write_by_optimum
from vcs_export.families.options import EmbedderOptions, folder_or_plain
from vcs_export.graph.encoder import write_encoder
from vcs_export.graph.modernbert import write_modernbert
from vcs_export.write import BundleInfo, BundleWriter, licence_file
from vcs_runtime.bundle.layouts import PADDING_STEP
from vcs_runtime.bundle.manifest import EmbedderSpec

Open = Callable[[Path], AbstractContextManager[Checkpoint[Any]]]
Write = Callable[[Any, SentenceFolder, Path, Path], None]
GRAPHS: dict[str, tuple[Open, Write]] = {
    **dict.fromkeys(FAMILIES, (open_encoder, write_encoder)),
    KIND: (open_modernbert, write_modernbert),
}
"""How the models that need no PyTorch are read and written, by the `model_type` in `config.json`."""


def build_sentence_bundle(
    checkpoint: Path,
    target: Path,
    info: BundleInfo,
    options: EmbedderOptions = EmbedderOptions(),
    *,
    optimum_python: Path | None = None,
    pooling: str | None = None,
) -> Path:
    """Build a bundle from the folder of any sentence-transformers encoder."""
    kind = model_type(checkpoint)
    if kind in DECODERS and optimum_python is None:
        path = checkpoint / CONFIG
        raise CheckpointError(f"{path}: for model_type {kind!r} use `vcs-runtime export decoder`")
    settings = read_json(checkpoint / CONFIG)
    if (checkpoint / MODULES).exists() and pooling is None:
        sentence = read_sentence_folder(checkpoint, options.prompt, options.instruction)
    else:
        hidden = positive(checkpoint / CONFIG, settings, "dim" if kind == "distilbert" else "hidden_size")
        sentence = folder_or_plain(checkpoint, hidden, pooling, options.prompt, options.instruction)
    sentence = replace(sentence, dimension=options.vector_length(sentence))
    vocab_size = positive(checkpoint / CONFIG, settings, "vocab_size")
    tokenizer, _ = sentence_tokenizer(checkpoint, sentence, vocab_size)
    with BundleWriter(target, info) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(tokenizer)
        model, weights = bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE)
        if optimum_python is None and kind in GRAPHS:
            open_checkpoint, write = GRAPHS[kind]
            with open_checkpoint(checkpoint) as opened:
                check_width(checkpoint, sentence, opened.config.hidden_size)
                max_tokens = options.window(checkpoint, sentence, opened.config.capacity)
                write(opened, sentence, model, weights)
        else:
            capacity = _capacity(kind, settings)
            max_tokens = options.window(checkpoint, sentence, capacity)
            # Optimum's table of positions has no rows for padding, so the longest text must need none.
            max_tokens = min(max_tokens, capacity // PADDING_STEP * PADDING_STEP) if capacity else max_tokens
            write_by_optimum(checkpoint, sentence, model, weights, optimum_python)
        return bundle.commit(
            embedder=EmbedderSpec(
                name=info.name,
                model=MODEL_FILE,
                weights=(WEIGHTS_FILE,),
                tokenizer=TOKENIZER_FILE,
                dimension=sentence.dimension,
                max_tokens=max_tokens,
                long_text=options.long_text,
                precision="fp32",
                instruction=sentence.instruction,
            ),
        )


def build_from_recipe(
    recipe: SentenceRecipe,
    checkpoint: Path,
    target: Path,
    options: EmbedderOptions = EmbedderOptions(),
    *,
    replace_target: bool = False,
) -> Path:
    """Build a bundle from the folder of a published encoder, whose settings must be the recipe's."""
    kind = model_type(checkpoint)
    if kind not in GRAPHS:
        raise CheckpointError(f"{checkpoint / CONFIG}: is not {recipe.source}: model_type is {kind}")
    with GRAPHS[kind][0](checkpoint) as opened:
        recipe.check_config(checkpoint / CONFIG, opened.config)
    if options.prompt is None and options.instruction is None:
        options = replace(options, instruction=recipe.instruction)
    sentence = read_sentence_folder(checkpoint, options.prompt, options.instruction)
    if sentence.pooling != recipe.pooling:
        raise CheckpointError(
            f"{checkpoint}: is not {recipe.source}: its pooling is {sentence.pooling}, not {recipe.pooling}"
        )
    recipe.check_dimension(options.vector_length(sentence), sentence.dimension)
    info = BundleInfo(
        recipe.name,
        recipe.licence,
        recipe.source,
        licence_file(recipe.licence, recipe.notice),
        replace_target,
    )
    return build_sentence_bundle(checkpoint, target, info, options)


def _capacity(kind: str, settings: Any) -> int | None:
    """Return the number of tokens that a model has positions for, as far as its settings tell."""
    positions = settings.get("max_position_embeddings")
    family = FAMILIES.get(kind)
    before = PAD + 1 if family and family.from_pad else 0
    return positions - before if isinstance(positions, int) and positions > before else None
