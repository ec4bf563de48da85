"""`vcs-runtime export`: from a model's own files to a bundle, once, before anything is scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vcs_export.cli.decoders import decoder, nv_embed_v2
from vcs_export.cli.options import (
    checkpoint,
    device_name,
    embedder_options,
    output,
    overwrite,
    read_recipe,
    require_builders,
    text_lines,
)
from vcs_export.cli.reporting import log, print_checks
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli.options import PATH, NumberRange


@click.group()
def export() -> None:
    """Build a bundle from a model's files.

    Nothing is downloaded, and no PyTorch is needed. `--rehearse` tries a command and all that follows it
    before the model's files are there.
    This needs `vcs-runtime[export]`.
    """


export.add_command(decoder)
export.add_command(nv_embed_v2)


@export.command()
@checkpoint
@output
@click.option("--tokenizer", type=PATH, metavar="FILE",
              help="Tokenizer of xlm-roberta-base. [default: tokenizer.json in the folder]")  # fmt: skip
@click.option("--precision", type=click.Choice(["fp32", "fp16", "int8"]), default="fp32", show_default=True,
              help="Precision of weights and arithmetic.")  # fmt: skip
@click.option("--recipe", metavar="NAME|FILE",
              help="Recipe to verify the files against: sat-3l-sm, sat-12l-sm, sat-3l, or a TOML file. "
              "[default: any model]")  # fmt: skip
@click.option("--threshold", type=NumberRange(0, 1, min_open=True, max_open=True), metavar="T",
              help="Probability above which a character ends a segment. Models adapted with LoRA need 0.5. "
              "[default: that of the recipe or of the authors]")  # fmt: skip
@click.option("--text", type=PATH, metavar="FILE",
              help="Texts, one a line, on which int8 is compared with fp32. "
              "[default: the demo's]")  # fmt: skip
@overwrite
def sat(
    checkpoint: Path,
    rehearse: bool,
    output: Path,
    tokenizer: Path | None,
    precision: str,
    recipe: str | None,
    threshold: float | None,
    text: Path | None,
    overwrite: bool,
) -> None:
    """Build a segmenter from a SaT (Segment Any Text) model.

    The folder holds config.json and model.safetensors. A recipe checks the model's settings and known hashes.

    \b
    Example:
      vcs-runtime export sat --from sat-12l-sm --tokenizer xlm-roberta-base/tokenizer.json -o sat
    """
    from vcs_export.checkpoint.recipe import SatRecipe
    from vcs_export.families.build import Build, Quantization
    from vcs_export.families.sat import SatOptions, build_sat_bundle
    from vcs_export.write import check_target, named_after

    check_target(output, overwrite, checkpoint, tokenizer, text)
    quantization = Quantization(precision, text_lines(text) if text else ())
    published = read_recipe(recipe, SatRecipe, rehearse)
    build = Build(checkpoint, output, named_after(checkpoint, overwrite), quantization)
    build_sat_bundle(build, SatOptions(tokenizer=tokenizer, threshold=threshold), published)
    segmenter = open_bundle(output).manifest.segmenter
    if segmenter and (model := segmenter.model):
        log(f"{model.name}: {model.precision}, threshold {model.threshold:g}")
        if model.precision == "int8":
            f1 = "neither finds any" if model.agreement is None else f"{model.agreement:.4f}"
            log(f"boundary F1 of int8 against fp32: {f1}")
    click.echo(output)


@export.command()
@checkpoint
@output
@embedder_options
@click.option("--long-text", type=click.Choice(EXPORTED_POLICIES), default="window_mean", show_default=True,
              help="Treatment of texts longer than the model's window: mean over windows, cut as "
              "sentence-transformers does (special tokens stay), or error.")  # fmt: skip
@click.option("--pooling", type=click.Choice(["mean", "cls", "max", "lasttoken"]),
              help="Pooling of a plain transformer, whose folder has no modules.json. "
              "[default: as the folder says]")  # fmt: skip
@click.option("--optimum-python", type=PATH, metavar="PATH",
              help="Python interpreter with optimum-onnx and PyTorch, whose optimum exports the model. "
              "[default: export without PyTorch]")  # fmt: skip
@overwrite
def encoder(
    checkpoint: Path,
    rehearse: bool,
    output: Path,
    recipe: str | None,
    optimum_python: Path | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Build an embedder from a sentence-transformers encoder.

    BERT, RoBERTa, XLM-RoBERTa, MPNet, DistilBERT and ModernBERT are exported without PyTorch. Any other
    encoder is exported by optimum, in an environment of its own. A recipe checks the model's settings, and
    knows its licence and the words that stand before its texts.

    \b
    Example:
      vcs-runtime export encoder --from multilingual-e5-base --recipe multilingual-e5-base -o embedder
    """
    from vcs_export.checkpoint.recipe import SentenceRecipe
    from vcs_export.checkpoint.sentence_folder import other_heads
    from vcs_export.families.build import Build
    from vcs_export.families.options import EmbedderOptions
    from vcs_export.families.sentence_encoder import build_sentence_bundle
    from vcs_export.write import check_target, named_after

    if recipe is not None and optimum_python is not None:
        raise click.UsageError("--recipe and --optimum-python exclude each other")
    if recipe is not None and options["pooling"] is not None:
        raise click.UsageError("--recipe and --pooling exclude each other")
    check_target(output, overwrite, checkpoint)
    settings = EmbedderOptions(**options)
    if published := read_recipe(recipe, SentenceRecipe, rehearse):
        log(f"the weights of {published.source} are licensed under {published.licence}")
    build = Build(checkpoint, output, named_after(checkpoint, overwrite))
    build_sentence_bundle(build, settings, published, optimum_python=optimum_python)
    if heads := other_heads(checkpoint):
        log(f"left out, as they do not give a text's vector: {', '.join(heads)}")
    click.echo(output)


@export.command()
@click.argument("bundle", type=PATH)
@click.option("--device", default="cpu", show_default=True, metavar="DEVICE", callback=device_name,
              help="Where the model runs: auto, cpu, openvino, openvino:fp32, cuda:N, or "
              "tensorrt:N.")  # fmt: skip
@click.option("--card", type=PATH, metavar="README.md",
              help="NV-Embed-v2's model card, whose scores are compared. [default: none]")  # fmt: skip
def verify(bundle: Path, device: str, card: Path | None) -> None:
    """Check a bundle's embedder by running it.

    Vectors must be finite, of unit length, and independent of batch, order and padding. The exit code is 1 if
    a check fails.

    \b
    Example:
      vcs-runtime export verify embedder --card NV-Embed-v2/README.md
    """
    require_builders("export", "verifying")
    from vcs_export.checks.verify import verify_embedder

    print_checks(verify_embedder(open_bundle(bundle), device, card))
