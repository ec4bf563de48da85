"""From the folder of any sentence-transformers encoder to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcs_export.checkpoint.encoders import FAMILIES, model_type, open_encoder
from vcs_export.checkpoint.sentence_folder import LENGTHS, SentenceFolder, read_sentence_folder
from vcs_export.checkpoint.settings import positive, read_json
from vcs_export.checkpoint.transformer import CONFIG, TOKENIZER, loaded_tokenizer
from vcs_export.checkpoint.xlm_roberta import PAD
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.bert import MODEL_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from vcs_export.families.optimum_route import write_by_optimum
from vcs_export.graph.encoder import write_encoder
from vcs_export.write import BundleInfo, BundleWriter
from vcs_runtime.bundle.layouts import PADDING_STEP
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES, EmbedderSpec

TOKENIZER_SETTINGS = "tokenizer_config.json"
_FEWEST_TOKENS = 3


def build_sentence_bundle(
    checkpoint: Path,
    target: Path,
    info: BundleInfo,
    *,
    long_text: str = "window_mean",
    optimum_python: Path | None = None,
) -> Path:
    """Build a bundle from the folder of any sentence-transformers encoder.

    Parameters
    ----------
    checkpoint
        The sentence-transformers folder.
    target
        The folder to write.
    info
        Name, licence, source and extra files of the bundle.
    long_text
        What the runtime does with texts beyond the model's window: one of `EXPORTED_POLICIES`.
    optimum_python
        Interpreter of an environment whose optimum exports the model. None builds the models of
        `checkpoint.encoders.FAMILIES` without PyTorch, and others by this interpreter's optimum.

    Returns
    -------
    path
        The target.

    Raises
    ------
    CheckpointError
        The checkpoint is damaged, or needs a step that no graph here implements.
    BundleExistsError
        The target exists, and is not to be replaced.
    ExportError
        An argument is out of range, optimum failed, or the disk cannot be written.
    """
    if long_text not in EXPORTED_POLICIES:
        raise ExportError(f"long_text must be one of {', '.join(EXPORTED_POLICIES)}, not {long_text!r}")
    kind = model_type(checkpoint)
    settings = read_json(checkpoint / CONFIG)
    sentence = read_sentence_folder(checkpoint)
    tokenizer = _tokenizer(checkpoint, settings, sentence)
    with BundleWriter(target, info) as bundle:
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
    """Return the bundle's `tokenizer.json`, after a check of its ids and its lower-casing."""
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
    """Return the number of tokens that a model has positions for, as far as its settings tell."""
    positions = settings.get("max_position_embeddings")
    family = FAMILIES.get(kind)
    before = PAD + 1 if family and family.from_pad else 0
    return positions - before if isinstance(positions, int) and positions > before else None


def _max_tokens(checkpoint: Path, sentence: SentenceFolder, capacity: int | None) -> int:
    """Return the longest input: the folder's limit, or that of the tokenizer's settings and the model."""
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
        length = data.get("model_max_length") if isinstance(data, dict) else None
        # "No limit" is saved as a huge float.
        limits = [n for n in (length, capacity) if isinstance(n, int) and 0 < n < 1 << 20]
        if not limits:
            raise CheckpointError(f"{checkpoint / LENGTHS}: max_seq_length is missing")
        most = min(limits)
    if most < _FEWEST_TOKENS:
        raise CheckpointError(f"{checkpoint}: an input of {most} tokens has no room for a text")
    return most
