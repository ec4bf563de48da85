"""From a SaT (Segment Any Text) model to a bundle that holds a segmenter alone."""

from __future__ import annotations

import json
from pathlib import Path

from vcs_export.checkpoint import CONFIG, TOKENIZER, read_json
from vcs_export.encoder import bare_tokenizer
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.graph.xlm_roberta import write_sat
from vcs_export.write import BundleWriter
from vcs_export.xlm_roberta import SatConfig, open_sat, sat_config
from vcs_runtime.bundle import BoundarySpec, RulesSpec, SegmenterSpec

MODEL_FILE = "segmenter/model.onnx"
WEIGHTS_FILE = "segmenter/model.onnx.data"
TOKENIZER_FILE = "segmenter/tokenizer.json"
PRECISIONS = ("fp32", "fp16")
FRAME = (0, 2)  # <s> and </s>
THRESHOLDS = "0.25 for -sm, 0.025 for base, 0.01 for no-limited-lookahead models, 0.5 with LoRA"
"""The authors' thresholds, in words: which one holds cannot be told from the files."""


def build_sat_bundle(
    checkpoint: Path,
    target: Path,
    *,
    name: str,
    threshold: float,
    stride: int = 64,
    licence: str,
    source: str,
    tokenizer: Path | None = None,
    precision: str | None = None,
    rules: RulesSpec | None = None,
    replace: bool = False,
) -> Path:
    """Build the bundle `target` from the SaT folder `checkpoint`; returns `target`.

    checkpoint  a folder with `config.json` and `model.safetensors`
    name        of the bundle and of its segmenter, as signatures print it
    threshold   a segment ends behind a character whose probability is above it; stride: tokens from the
                start of one window to the next
    licence     SPDX identifier of the weights;  source  where they came from, in words
    tokenizer   xlm-roberta-base's `tokenizer.json`; None: the one in the folder (the authors' have none)
    precision   of weights and arithmetic: "fp32" (None means this) or "fp16"
    rules       what cuts texts with sentence punctuation; None: the model cuts every text
    replace     replace a bundle that is there

    The bundle's bytes follow from the arguments alone.
    Raises CheckpointError, BundleExistsError, ExportError.
    """
    precision = precision or "fp32"
    if precision not in PRECISIONS:
        raise ExportError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    config = sat_config(checkpoint / CONFIG, read_json(checkpoint / CONFIG))
    check_settings(config, threshold, stride)
    words = _tokenizer(tokenizer or checkpoint / TOKENIZER, config)
    with open_sat(checkpoint) as opened, BundleWriter(target, replace) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(words)
        write_sat(opened, bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE), half=precision == "fp16")
        return bundle.commit(
            name=name,
            licence=licence,
            source=source,
            segmenter=SegmenterSpec(
                rules=rules,
                model=BoundarySpec(
                    name=name,
                    kind="sat",
                    model=MODEL_FILE,
                    weights=(WEIGHTS_FILE,),
                    tokenizer=TOKENIZER_FILE,
                    frame=FRAME,
                    max_tokens=config.max_tokens,
                    stride=stride,
                    threshold=threshold,
                    precision=precision,
                ),
            ),
        )


def check_settings(config: SatConfig, threshold: float, stride: int) -> None:
    """Refuse a threshold or stride that the runtime would refuse. Raises ExportError."""
    if not 0 < threshold < 1:
        raise ExportError(f"threshold must be between 0 and 1, not {threshold}")
    if not 1 <= stride <= (most := config.max_tokens - len(FRAME)):
        raise ExportError(f"stride must be 1 to {most} tokens, not {stride}")


def _tokenizer(path: Path, config: SatConfig) -> bytes:
    """The bundle's `tokenizer.json`, after a look at its vocabulary."""
    if not path.is_file():
        raise CheckpointError(
            f"{path}: no such file; SaT uses xlm-roberta-base's tokenizer.json: put it there or name it"
        )
    content = bare_tokenizer(path)
    data = json.loads(content)
    pieces = data["model"].get("vocab")
    if data["model"].get("type") != "Unigram" or not isinstance(pieces, list):
        raise CheckpointError(f"{path}: model: a Unigram tokenizer was expected, as xlm-roberta-base has it")
    # Special tokens may stand behind the model's own vocabulary, but most stand inside it.
    highest = max([len(pieces) - 1, *(token["id"] for token in data.get("added_tokens") or [])])
    if highest + 1 != config.vocab_size:
        raise CheckpointError(
            f"{path}: {highest + 1} tokens, but the model has {config.vocab_size} (vocab_size): "
            "this is another model's tokenizer"
        )
    for token, text in zip(FRAME, ("<s>", "</s>"), strict=True):
        if pieces[token][0] != text:
            raise CheckpointError(f"{path}: token {token} must be {text}, not {pieces[token][0]!r}")
    return content
