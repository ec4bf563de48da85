"""From the folder of any sentence-transformers encoder to a bundle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from vcs_export.checkpoint.decoders.opening import FAMILIES as DECODERS
from vcs_export.checkpoint.encoders import FAMILIES, model_type, open_encoder
from vcs_export.checkpoint.modernbert import KIND, open_modernbert
from vcs_export.checkpoint.recipe import SegmenterRecipe, SentenceRecipe
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
from vcs_export.families.build import (
    MODEL_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    Build,
    EmbedderOptions,
)
from vcs_export.families.learned_segmenter import add_learned_segmenter
from vcs_export.families.optimum_route import write_by_optimum
from vcs_export.graph.builder import StoredWeights
from vcs_export.graph.cuda_encoder import cuda_graph, write_cuda_encoder
from vcs_export.graph.encoder import write_encoder
from vcs_export.graph.modernbert import write_modernbert
from vcs_export.write import BundleWriter
from vcs_runtime.bundle.layouts import PADDING_STEP
from vcs_runtime.bundle.manifest import CudaGraph, EmbedderSpec, LearnedSegmenterSpec, SegmenterSpec


class _Written(NamedTuple):
    """What `bundle.json` says about the written graphs."""

    max_tokens: int
    cuda: CudaGraph | None = None
    segmenter: LearnedSegmenterSpec | None = None


class Native(NamedTuple):
    """How an encoder is exported without PyTorch."""

    open: Callable[[Path], Checkpoint[Any]]
    write: Callable[[Any, SentenceFolder, Path, Path], StoredWeights]
    for_cuda: bool  # whether there may be a graph for CUDA


GRAPHS: dict[str, Native] = {
    **dict.fromkeys(FAMILIES, Native(open_encoder, write_encoder, for_cuda=True)),
    KIND: Native(open_modernbert, write_modernbert, for_cuda=False),
}
"""The reader and writer of each model that needs no PyTorch, by `model_type` in `config.json`."""


def build_sentence_bundle(
    build: Build,
    options: EmbedderOptions = EmbedderOptions(),
    recipe: SentenceRecipe | None = None,
    *,
    optimum_python: Path | None = None,
    learned: SegmenterRecipe | None = None,
) -> Path:
    """Build a bundle from the folder of any sentence-transformers encoder.

    The bundle's bytes follow from the arguments alone, unless optimum writes the graph. A recipe
    needs a model that is exported without optimum. So does a learned segmenter, which shares the
    encoder's weights.
    """
    folder = build.checkpoint
    path = folder / CONFIG
    kind = model_type(folder)
    if recipe and kind not in GRAPHS:
        raise CheckpointError(f"{path} is not {recipe.source}: model_type is {kind}")
    if kind in DECODERS and optimum_python is None:
        raise CheckpointError(f"{path}: for model_type {kind!r} use `vcs-runtime export decoder`")
    settings = read_json(path)
    native = GRAPHS.get(kind) if optimum_python is None else None
    opened = native.open(folder) if native else None
    if recipe:
        recipe.check_config(path, opened.config if opened else None)
        options = options.with_instruction(recipe.instruction)
        build = build.of_recipe(recipe)
    sentence = _read_sentence(folder, kind, settings, options)
    if recipe and sentence.pooling != recipe.pooling:
        raise CheckpointError(
            f"{folder} is not {recipe.source}: its pooling is {sentence.pooling}, not"
            f" {recipe.pooling}"
        )
    dimension = options.vector_length(sentence)
    if recipe:
        recipe.check_dimension(dimension, sentence.dimension)
    sentence = replace(sentence, dimension=dimension)
    tokenizer, _ = sentence_tokenizer(folder, sentence, positive(path, settings, "vocab_size"))
    with BundleWriter(build.target, build.info) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(tokenizer)
        if native and opened:
            written = _write_native(bundle, native, opened, sentence, options, learned)
        else:
            capacity = _capacity(kind, settings)
            max_tokens = _window_of_optimum(options.window(folder, sentence, capacity), capacity)
            model, weights = bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE)
            write_by_optimum(folder, sentence, model, weights, optimum_python)
            written = _Written(max_tokens)
        segmenter = written.segmenter
        return bundle.commit(
            embedder=EmbedderSpec(
                name=build.info.name,
                model=MODEL_FILE,
                weights=(WEIGHTS_FILE,),
                tokenizer=TOKENIZER_FILE,
                dimension=dimension,
                max_tokens=written.max_tokens,
                long_text=options.long_text,
                precision="fp32",
                cuda=written.cuda,
                instruction=sentence.instruction,
            ),
            segmenter=SegmenterSpec(build.rules, segmenter) if build.rules or segmenter else None,
            prove=build.prove,
        )


def _read_sentence(
    folder: Path, kind: str, settings: Any, options: EmbedderOptions
) -> SentenceFolder:
    """Read the sentence-transformers folder, or a plain transformer with the caller's pooling."""
    if (folder / MODULES).exists() and options.pooling is None:
        return read_sentence_folder(folder, options.prompt, options.instruction)
    width = "dim" if kind == "distilbert" else "hidden_size"
    return options.sentence(folder, positive(folder / CONFIG, settings, width))


def _write_native(
    bundle: BundleWriter,
    native: Native,
    opened: Checkpoint[Any],
    sentence: SentenceFolder,
    options: EmbedderOptions,
    learned: SegmenterRecipe | None,
) -> _Written:
    """Write the graphs of an encoder that needs no PyTorch, and a learned segmenter beside them."""
    model, weights = bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE)
    check_width(opened.folder, sentence, opened.config.hidden_size)
    max_tokens = options.window(opened.folder, sentence, opened.config.capacity)
    stored = native.write(opened, sentence, model, weights)
    cuda = None
    if native.for_cuda and write_cuda_encoder(opened, sentence, model, stored):
        cuda = cuda_graph(MODEL_FILE)
    segmenter = add_learned_segmenter(bundle, opened, learned, stored) if learned else None
    return _Written(max_tokens, cuda, segmenter)


def _window_of_optimum(max_tokens: int, capacity: int | None) -> int:
    """Return the longest input of a graph by optimum.

    Its table of positions has no rows for padding, so that the longest text must need no padding.
    """
    if capacity is None:
        return max_tokens
    return min(max_tokens, capacity // PADDING_STEP * PADDING_STEP)


def _capacity(kind: str, settings: Any) -> int | None:
    """Return the number of tokens that a model has positions for, or None if it is unknown."""
    positions = settings.get("max_position_embeddings")
    family = FAMILIES.get(kind)
    unused = PAD + 1 if family and family.from_pad else 0
    if not isinstance(positions, int) or positions <= unused:
        return None
    return positions - unused
