"""From a SaT (Segment Any Text) model to a bundle with only a segmenter."""

from __future__ import annotations

import string
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from vcs_export.checkpoint.recipe import SatRecipe
from vcs_export.checkpoint.safetensors_reader import WEIGHTS
from vcs_export.checkpoint.settings import read_json
from vcs_export.checkpoint.transformer import CONFIG, TOKENIZER, checked_tokenizer
from vcs_export.checkpoint.xlm_roberta import PAD, SatConfig, open_sat, sat_config
from vcs_export.checks.quantization_error import boundary_agreement, demo_texts
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import Build, check_choice
from vcs_export.graph.cuda_encoder import cuda_graph, write_cuda_sat
from vcs_export.graph.xlm_roberta import write_sat
from vcs_export.quantization.int8 import quantize
from vcs_export.write import BundleWriter
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec, SegmenterSpec
from vcs_runtime.util.presence import is_folder, is_there

MODEL_FILE = "segmenter/model.onnx"
WEIGHTS_FILE = "segmenter/model.onnx.data"
TOKENIZER_FILE = "segmenter/tokenizer.json"
PRECISIONS = ("fp32", "fp16", "int8")
SPECIAL_TOKENS = (0, 2)
"""Ids of `<s>` and `</s>`, which stand before and after a window."""
_STRIDE = 64  # in tokens, without a recipe


@dataclass(frozen=True, kw_only=True)
class SatOptions:
    """The caller's choices for a SaT model. None takes the value of the folder or of a recipe."""

    tokenizer: Path | None = None
    threshold: float | None = None
    stride: int | None = None  # in tokens


def build_sat_bundle(
    build: Build, options: SatOptions = SatOptions(), recipe: SatRecipe | None = None
) -> Path:
    """Build a bundle from a SaT model.

    The bundle's bytes follow from the arguments. In int8 they also depend on the release of ONNX
    Runtime.
    """
    folder = build.checkpoint
    if not is_folder(folder):
        raise CheckpointError(f"{folder}: no such folder")
    if not is_there(folder / WEIGHTS):
        raise CheckpointError(f"{folder}: the folder has no {WEIGHTS}")
    config = sat_config(folder / CONFIG, read_json(folder / CONFIG))
    tokenizer = options.tokenizer or folder / TOKENIZER
    # The caller's choices win over the recipe's values, and these over the defaults.
    threshold, stride = config.authors_threshold, _STRIDE
    if recipe:
        _check_recipe(recipe, folder / CONFIG, config, folder / WEIGHTS, tokenizer)
        build = build.of_recipe(recipe)
        threshold, stride = recipe.threshold, recipe.stride
    if options.threshold is not None:
        threshold = options.threshold
    if options.stride is not None:
        stride = options.stride
    _check_windows(config, threshold, stride)
    precision = build.quantization.precision or "fp32"
    check_choice("precision", precision, PRECISIONS)
    content = _tokenizer(tokenizer, config)
    with BundleWriter(build.target, build.info) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(content)
        has_cuda = _write_graph(folder, bundle.file(MODEL_FILE), precision)
        spec = partial(
            LearnedSegmenterSpec,
            name=build.info.name,
            kind="sat",
            model=MODEL_FILE,
            weights=(WEIGHTS_FILE,),
            tokenizer=TOKENIZER_FILE,
            special_tokens=SPECIAL_TOKENS,
            max_tokens=config.max_tokens,
            stride=stride,
            threshold=threshold,
            cuda=cuda_graph(MODEL_FILE) if has_cuda else None,
        )
        agreement = None
        if precision == "int8":
            exact, int8 = spec(precision="fp32"), spec(precision="int8")
            texts = build.quantization.texts or _stories()
            agreement = _agreement(folder, exact, (bundle.folder, int8), texts)
        model = spec(precision=precision, agreement=agreement)
        return bundle.commit(
            segmenter=SegmenterSpec(rules=build.rules, model=model), prove=build.prove
        )


def _check_recipe(
    recipe: SatRecipe, path: Path, config: SatConfig, model: Path, tokenizer: Path
) -> None:
    """Raise CheckpointError if a model's settings or known file hashes differ from the recipe's."""
    settings = asdict(config)
    for key, expected in recipe.settings.items():
        if settings[key] != expected:
            raise CheckpointError(
                f"{path}: {key} is {settings[key]}, but {expected} in the recipe {recipe.name}:"
                " this is another model"
            )
    # The tokenizer may have been saved under any name.
    for file, name in ((model, model.name), (tokenizer, TOKENIZER)):
        pinned = recipe.sha256.get(name)
        if pinned and file.is_file() and sha256_of(file) != pinned:
            raise CheckpointError(
                f"{file} is not the file of the recipe {recipe.name} (sha256 {pinned[:16]}...); a"
                " model of your own is exported without a recipe, with its own threshold"
            )


def _write_graph(folder: Path, model: Path, precision: str) -> bool:
    """Write `model`, with its weights beside it; return whether a CUDA graph was written too."""
    opened = open_sat(folder)
    if precision != "int8":
        stored = write_sat(opened, model, model.with_name(f"{model.name}.data"), precision)
        return write_cuda_sat(opened, model, stored, precision)
    with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as work:
        source = Path(work, "model.onnx")
        write_sat(opened, source, Path(work, "model.onnx.data"), precision)
        quantize(source, model)
    return False


def _agreement(
    folder: Path,
    exact: LearnedSegmenterSpec,
    quantised: tuple[Path, LearnedSegmenterSpec],
    texts: Sequence[str],
) -> float | None:
    """Measure the boundary F1 of a quantised model against fp32 from the same checkpoint."""
    with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as work:
        for path in (exact.model, exact.tokenizer):
            Path(work, path).parent.mkdir(parents=True, exist_ok=True)
        Path(work, exact.tokenizer).write_bytes((quantised[0] / exact.tokenizer).read_bytes())
        _write_graph(folder, Path(work, exact.model), exact.precision)
        return boundary_agreement((Path(work), exact), quantised, texts)


def _stories() -> list[str]:
    """Return the demo's descriptions without punctuation, as the segmenter sees texts."""
    removed = str.maketrans("", "", string.punctuation)
    return [text.translate(removed) for text in demo_texts()]


def _check_windows(config: SatConfig, threshold: float, stride: int) -> None:
    """Refuse settings that the runtime would refuse in a manifest. Raises ExportError."""
    if not 0 < threshold < 1:
        raise ExportError(f"threshold must be between 0 and 1, not {threshold}")
    most = config.max_tokens - len(SPECIAL_TOKENS)
    if not 1 <= stride <= most:
        raise ExportError(f"stride must be 1 to {most} tokens, not {stride}")


def _tokenizer(path: Path, config: SatConfig) -> bytes:
    """Return the bundle's `tokenizer.json`, after a check of its vocabulary."""
    if not path.is_file():
        raise CheckpointError(
            f"{path}: no such file; SaT uses xlm-roberta-base's tokenizer.json: put it there, or"
            " give --tokenizer"
        )
    special = {"<s>": SPECIAL_TOKENS[0], "<pad>": PAD, "</s>": SPECIAL_TOKENS[1]}
    return checked_tokenizer(path, config.vocab_size, special)
