"""From a SaT (Segment Any Text) model to a bundle that holds a segmenter alone."""

from __future__ import annotations

import re
import string
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from msgspec import structs

from vcs_export.checkpoint.recipe import SatRecipe
from vcs_export.checkpoint.transformer import (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    checked_tokenizer,
    read_json,
)
from vcs_export.checkpoint.xlm_roberta import (
    PAD,
    READY_MADE,
    SatConfig,
    open_sat,
    sat_config,
)
from vcs_export.checks.boundary_agreement import boundary_agreement
from vcs_export.checks.quantization_error import demo_texts
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.sat_ready_made import open_ready_made
from vcs_export.graph.xlm_roberta import write_sat
from vcs_export.quantization.int8 import quantize
from vcs_export.write import LICENCES, BundleWriter
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec, RulesSpec, SegmenterSpec

MODEL_FILE = "segmenter/model.onnx"
WEIGHTS_FILE = "segmenter/model.onnx.data"
TOKENIZER_FILE = "segmenter/tokenizer.json"
PRECISIONS = ("fp32", "fp16", "int8")
FRAME = (0, 2)  # <s> and </s>


def build_sat_bundle(
    checkpoint: Path,
    target: Path,
    *,
    name: str,
    threshold: float | None = None,
    stride: int = 64,
    licence: str,
    source: str,
    tokenizer: Path | None = None,
    precision: str | None = None,
    texts: Sequence[str] = (),
    rules: RulesSpec | None = None,
    extra_files: Mapping[str, bytes] | None = None,
    replace: bool = False,
) -> Path:
    """Build the bundle `target` from the SaT model `checkpoint`; returns `target`.

    checkpoint  a folder with `config.json` and `model.safetensors`, or else a ready-made graph, `model.onnx`
                or `model_optimized.onnx`, which is taken as it is; or the path of such a graph itself
    name        of the bundle and of its segmenter, as signatures print it
    threshold   a segment ends behind a character whose probability is above it; None: what the authors give
                for models of this kind, which their settings tell
    stride      tokens from the start of one window to the next
    licence     SPDX identifier of the weights;  source  where they came from, in words
    tokenizer   xlm-roberta-base's `tokenizer.json`; None: the one in the folder (the authors' have none)
    precision   of weights and arithmetic, one of `PRECISIONS`; None: fp32, or what a ready-made graph has
    texts       for int8: how far its boundaries agree with those of fp32 is measured on them; by default
                on the stories of `vcs-runtime demo`
    rules       what cuts texts with sentence punctuation; None: the model cuts every text
    extra_files further files by their path in the bundle: licence texts, notices
    replace     replace a bundle that is there

    The bundle's bytes follow from the arguments alone (int8: and from the release of ONNX Runtime).
    Raises CheckpointError, BundleExistsError, ExportError.
    """
    folder, graph = locate(checkpoint)
    config = sat_config(folder / CONFIG, read_json(folder / CONFIG))
    threshold = config.authors_threshold if threshold is None else threshold
    _check_settings(config, name, threshold, stride)
    ready = open_ready_made(graph, config) if graph else None
    precision = precision or (ready.precision if ready else "fp32")
    if precision not in PRECISIONS:
        raise ExportError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    if ready and precision != ready.precision:
        raise ExportError(f"{graph}: is {ready.precision}; {precision} can only be made from {WEIGHTS}")
    words = _tokenizer(tokenizer or folder / TOKENIZER, config)
    with BundleWriter(target, replace) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(words)
        for path, content in (extra_files or {}).items():
            bundle.file(path).write_bytes(content)
        if ready:
            weights = ready.copy(bundle.file, MODEL_FILE)
        else:
            weights = (WEIGHTS_FILE,)
            _write_graph(folder, bundle.file(MODEL_FILE), precision)
        spec = LearnedSegmenterSpec(
            name=name,
            kind="sat",
            model=MODEL_FILE,
            weights=weights,
            tokenizer=TOKENIZER_FILE,
            special_tokens=FRAME,
            max_tokens=config.max_tokens,
            stride=stride,
            threshold=threshold,
            precision=precision,
        )
        if precision == "int8":
            spec = structs.replace(
                spec, agreement=_agreement(folder, bundle.folder, spec, texts or _stories())
            )
        return bundle.commit(
            name=name, licence=licence, source=source, segmenter=SegmenterSpec(rules=rules, model=spec)
        )


def build_from_recipe(
    recipe: SatRecipe,
    checkpoint: Path,
    target: Path,
    *,
    tokenizer: Path | None = None,
    threshold: float | None = None,
    precision: str | None = None,
    texts: Sequence[str] = (),
    replace: bool = False,
) -> Path:
    """Build the bundle of the model that `recipe` describes; returns `target`.

    threshold  in place of the recipe's;  all else as in `build_sat_bundle`

    Raises CheckpointError if it is another model: by its settings, or by the sha256 of a file that the
    recipe pins; and what `build_sat_bundle` raises.
    """
    folder, graph = locate(checkpoint)
    path = folder / CONFIG
    config = asdict(sat_config(path, read_json(path)))
    for key, wanted in recipe.config.items():
        if config[key] != wanted:
            raise CheckpointError(
                f"{path}: {key} is {config[key]}, but {wanted} in the recipe {recipe.name}: another model"
            )
    model = graph or folder / WEIGHTS
    # The tokenizer may have been saved under any name.
    for path, name in ((model, model.name), (tokenizer or folder / TOKENIZER, TOKENIZER)):
        pinned = recipe.sha256.get(name)
        if pinned and path.is_file() and sha256_of(path) != pinned:
            raise CheckpointError(
                f"{path}: is not the file that the recipe {recipe.name} names (sha256 {pinned[:16]}...); "
                "a model of your own is exported without a recipe, with its own threshold"
            )
    return build_sat_bundle(
        checkpoint,
        target,
        name=recipe.name,
        threshold=recipe.threshold if threshold is None else threshold,
        stride=recipe.stride,
        licence=recipe.licence,
        source=recipe.source,
        tokenizer=tokenizer,
        precision=precision,
        texts=texts,
        extra_files={f"{LICENCES}/{recipe.licence}.txt": recipe.notice} if recipe.notice else None,
        replace=replace,
    )


def locate(checkpoint: Path) -> tuple[Path, Path | None]:
    """The folder of a model, and its ready-made graph if that is what will be taken.

    Raises CheckpointError if there is neither weights nor a graph.
    """
    if checkpoint.suffix == ".onnx" and checkpoint.is_file():
        return checkpoint.parent, checkpoint
    if not checkpoint.is_dir():
        raise CheckpointError(f"{checkpoint}: no such folder")
    if (checkpoint / WEIGHTS).exists():
        return checkpoint, None
    for name in READY_MADE:
        if (checkpoint / name).exists():
            return checkpoint, checkpoint / name
    raise CheckpointError(f"{checkpoint}: there is no {WEIGHTS} in it, nor {' or '.join(READY_MADE)}")


def _write_graph(folder: Path, model: Path, precision: str) -> None:
    """Write `model`, and its weights beside it, from the checkpoint in `folder`."""
    with open_sat(folder) as opened:
        if precision != "int8":
            write_sat(opened, model, model.with_name(f"{model.name}.data"), precision)
            return
        with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as work:
            source = Path(work, "model.onnx")
            write_sat(opened, source, Path(work, "model.onnx.data"), precision)
            quantize(source, model)


def _agreement(folder: Path, built: Path, spec: LearnedSegmenterSpec, texts: Sequence[str]) -> float | None:
    """Boundary F1 of the model `spec` in the folder `built` against fp32 from the same checkpoint."""
    with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as work:
        exact = structs.replace(spec, precision="fp32")
        for path in (exact.model, exact.tokenizer):
            Path(work, path).parent.mkdir(parents=True, exist_ok=True)
        Path(work, exact.tokenizer).write_bytes((built / spec.tokenizer).read_bytes())
        _write_graph(folder, Path(work, exact.model), exact.precision)
        return boundary_agreement((Path(work), exact), (built, spec), texts)


def _stories() -> list[str]:
    """The demo's descriptions, without punctuation, as the segmenter sees texts."""
    return [text.translate(str.maketrans("", "", string.punctuation)) for text in demo_texts()]


def _check_settings(config: SatConfig, name: str, threshold: float, stride: int) -> None:
    """Refuse what the runtime would refuse in a manifest. Raises ExportError."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise ExportError(f"name {name!r} must be letters, digits, '.', '_' and '-'")
    if not 0 < threshold < 1:
        raise ExportError(f"threshold must be between 0 and 1, not {threshold}")
    most = config.max_tokens - len(FRAME)
    if not 1 <= stride <= most:
        raise ExportError(f"stride must be 1 to {most} tokens, not {stride}")


def _tokenizer(path: Path, config: SatConfig) -> bytes:
    """The bundle's `tokenizer.json`, after a look at its vocabulary."""
    if not path.is_file():
        raise CheckpointError(
            f"{path}: no such file; SaT uses xlm-roberta-base's tokenizer.json: put it there or name it"
        )
    special = {"<s>": FRAME[0], "<pad>": PAD, "</s>": FRAME[1]}
    return checked_tokenizer(path, config.vocab_size, special)
