"""From the folder of any sentence-transformers encoder to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcs_export.checkpoint.encoders import FAMILIES, model_type, open_encoder
from vcs_export.checkpoint.modernbert import KIND as MODERNBERT
from vcs_export.checkpoint.modernbert import open_modernbert
from vcs_export.checkpoint.sentence_folder import (
    check_width,
    longest_input,
    read_sentence_folder,
    sentence_tokenizer,
)
from vcs_export.checkpoint.settings import positive, read_json
from vcs_export.checkpoint.transformer import CONFIG
from vcs_export.checkpoint.xlm_roberta import PAD
from vcs_export.errors import ExportError
from vcs_export.families.bert import MODEL_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from vcs_export.families.optimum_route import write_by_optimum
from vcs_export.graph.encoder import write_encoder
from vcs_export.graph.modernbert import write_modernbert
from vcs_export.write import BundleInfo, BundleWriter
from vcs_runtime.bundle.layouts import PADDING_STEP
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES, EmbedderSpec


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
        Interpreter of an environment whose optimum exports the model. None builds ModernBERT and the models
        of `checkpoint.encoders.FAMILIES` without PyTorch, and others by this interpreter's optimum.

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
    vocab_size = positive(checkpoint / CONFIG, settings, "vocab_size")
    tokenizer, _ = sentence_tokenizer(checkpoint, sentence, vocab_size)
    with BundleWriter(target, info) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(tokenizer)
        model, weights = bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE)
        if optimum_python is None and kind in FAMILIES:
            with open_encoder(checkpoint) as opened:
                check_width(checkpoint, sentence, opened.config.hidden_size)
                max_tokens = longest_input(checkpoint, sentence, opened.config.capacity)
                write_encoder(opened, sentence, model, weights)
        elif optimum_python is None and kind == MODERNBERT:
            with open_modernbert(checkpoint) as modern:
                check_width(checkpoint, sentence, modern.config.hidden_size)
                max_tokens = longest_input(checkpoint, sentence, modern.config.capacity)
                write_modernbert(modern, sentence, model, weights)
        else:
            capacity = _capacity(kind, settings)
            max_tokens = longest_input(checkpoint, sentence, capacity)
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


def _capacity(kind: str, settings: Any) -> int | None:
    """Return the number of tokens that a model has positions for, as far as its settings tell."""
    positions = settings.get("max_position_embeddings")
    family = FAMILIES.get(kind)
    before = PAD + 1 if family and family.from_pad else 0
    return positions - before if isinstance(positions, int) and positions > before else None
