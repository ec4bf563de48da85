"""From the folder of any sentence-transformers encoder to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcs_export.checkpoint.encoders import FAMILIES, model_type, open_encoder
from vcs_export.checkpoint.sentence_folder import LENGTHS, SentenceFolder, read_sentence_folder
from vcs_export.checkpoint.transformer import (
    CONFIG,
    TOKENIZER,
    loaded_tokenizer,
    positive,
    read_json,
)
from vcs_export.checkpoint.xlm_roberta import PAD
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.bert import MODEL_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from vcs_export.families.optimum_route import write_by_optimum
from vcs_export.graph.encoder import write_encoder
from vcs_export.write import BundleWriter
from vcs_runtime.bundle.layouts import PADDING_STEP
from vcs_runtime.bundle.manifest import LONG_TEXT_POLICIES, EmbedderSpec

TOKENIZER_SETTINGS = "tokenizer_config.json"
_FEWEST_TOKENS = 3


def build_sentence_bundle(
    checkpoint: Path,
    target: Path,
    *,
    name: str,
    licence: str,
    source: str,
    long_text: str = "window_mean",
    optimum_python: Path | None = None,
    replace: bool = False,
) -> Path:
    """Build the bundle `target` from the sentence-transformers folder `checkpoint`; returns `target`.

    name            of the bundle and of its embedder, as signatures print it
    licence         SPDX identifier of the weights;  source  where they came from, in words
    long_text       what the runtime does with texts beyond the model's window (`EmbedderSpec`)
    optimum_python  let optimum export it, in the environment of this interpreter; None: models of
                    `families.FAMILIES` are built without PyTorch, others by this interpreter's optimum
    replace         replace a bundle that is there

    Raises CheckpointError, BundleExistsError, ExportError.
    """
    if long_text not in LONG_TEXT_POLICIES:
        raise ExportError(f"long_text must be one of {', '.join(LONG_TEXT_POLICIES)}, not {long_text!r}")
    kind = model_type(checkpoint)
    settings = read_json(checkpoint / CONFIG)
    sentence = read_sentence_folder(checkpoint)
    tokenizer = _tokenizer(checkpoint, settings, sentence)
    with BundleWriter(target, replace) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(tokenizer)
        model, weights = bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE)
        if optimum_python is None and kind in FAMILIES:
            with open_encoder(checkpoint) as opened:
                _check_width(checkpoint, sentence, opened.config.hidden_size)
                max_tokens = _max_tokens(checkpoint, sentence, opened.config.capacity)
                write_encoder(opened, sentence, model, weights)
        else:
            capacity = _capacity(kind, settings)
            max_tokens = _max_tokens(checkpoint, sentence, capacity)
            # Its table of positions has no rows for padding: the longest text must need none.
            max_tokens = min(max_tokens, capacity // PADDING_STEP * PADDING_STEP) if capacity else max_tokens
            write_by_optimum(checkpoint, sentence, model, weights, optimum_python)
        return bundle.commit(
            name=name,
            licence=licence,
            source=source,
            embedder=EmbedderSpec(
                name=name,
                model=MODEL_FILE,
                weights=(WEIGHTS_FILE,),
                tokenizer=TOKENIZER_FILE,
                dimension=sentence.dimension,
                max_tokens=max_tokens,
                long_text=long_text,
                precision="fp32",
                instruction=sentence.instruction,
            ),
        )


def _check_width(checkpoint: Path, sentence: SentenceFolder, hidden: int) -> None:
    if sentence.width != hidden:
        raise CheckpointError(
            f"{checkpoint}: the pooling expects vectors of {sentence.width} numbers, {CONFIG} has {hidden}"
        )


def _tokenizer(checkpoint: Path, settings: Any, sentence: SentenceFolder) -> bytes:
    """The bundle's `tokenizer.json`: every id that it can give must be a row of the model's table, and it
    must lower-case texts itself if they are to be."""
    path = checkpoint / TOKENIZER
    content, tokenizer = loaded_tokenizer(path)
    largest = max(tokenizer.get_vocab().values(), default=0)
    size = positive(checkpoint / CONFIG, settings, "vocab_size")
    if largest >= size:
        raise CheckpointError(
            f"{path}: it has the token id {largest}, but the model {size} tokens (vocab_size): "
            "this is another model's tokenizer"
        )
    normalizer = tokenizer.normalizer
    if sentence.lower_case and (normalizer is None or normalizer.normalize_str("AZÉ") not in ("azé", "aze")):
        raise CheckpointError(
            f"{checkpoint / LENGTHS}: do_lower_case True is not supported: {TOKENIZER} does not lower-case"
        )
    return content


def _capacity(kind: str, settings: Any) -> int | None:
    """How many tokens a model has positions for, as far as its settings tell."""
    found = settings.get("max_position_embeddings")
    family = FAMILIES.get(kind)
    before = PAD + 1 if family and family.from_pad else 0
    return found - before if isinstance(found, int) and found > before else None


def _max_tokens(checkpoint: Path, sentence: SentenceFolder, capacity: int | None) -> int:
    """The longest input: as the folder says, else as long as the tokenizer's settings and the model allow."""
    if sentence.max_tokens is not None:
        most = sentence.max_tokens
        if capacity is not None and most > capacity:
            raise CheckpointError(
                f"{checkpoint / LENGTHS}: max_seq_length {most} is more than "
                f"the {capacity} positions of the model"
            )
    else:
        path = checkpoint / TOKENIZER_SETTINGS
        data = read_json(path) if path.is_file() else {}
        said = data.get("model_max_length") if isinstance(data, dict) else None
        # A float beyond all bounds is how "no limit" is saved.
        limits = [n for n in (said, capacity) if isinstance(n, int) and 0 < n < 1 << 20]
        if not limits:
            raise CheckpointError(f"{checkpoint / LENGTHS}: max_seq_length is missing")
        most = min(limits)
    if most < _FEWEST_TOKENS:
        raise CheckpointError(f"{checkpoint}: an input of {most} tokens has no room for a text")
    return most
