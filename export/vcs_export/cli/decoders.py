"""`vcs-runtime export decoder` and `export nv-embed-v2`: bundles of models larger than memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcs_export.cli.options import (
    all_of,
    checkpoint,
    device_name,
    embedder_options,
    output,
    overwrite,
    read_recipe,
    text_lines,
)
from vcs_export.cli.reporting import log, step_bars
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES, MANIFEST, EmbedderSpec, read_manifest
from vcs_runtime.cli.options import PATH, NumberRange

if TYPE_CHECKING:
    from vcs_export.checkpoint.recipe import PublishedRecipe
    from vcs_export.families.build import Build

_PRECISIONS = ("fp16", "bf16", "fp32", "fp8", "int8", "int4")
# Those of every model whose weights are streamed.
_streamed = all_of(
    click.option("--target", "target_runtime", type=click.Choice(["ort", "tensorrt"]), default="ort",
                 show_default=True, help="Runtime that the graph is written for."),
    click.option("--weights", type=click.Choice(["link", "copy"]), default="link", show_default=True,
                 help="How unchanged weights enter the bundle: hard links to the model's files, or copies."),
    click.option("--text", type=PATH, metavar="FILE",
                 help="Texts, one a line, on which the error of int8, int4 and fp8 is measured. "
                 "[default: the demo's]"),
    click.option("--calibration", type=PATH, metavar="FILE",
                 help="Texts, one a line, on which the ranges of fp8 are measured. "
                 "[default: built-in texts]"),
    click.option("--least-cosine", type=NumberRange(-1, 1), metavar="X",
                 help="Lowest accepted mean cosine to unquantised vectors. [default: 0.99; none for int4]"),
    click.option("--most-change", type=NumberRange(0, 1), metavar="X",
                 help="Largest accepted mean change of VCS by quantisation; 1 accepts any. "
                 "[default: 0.01; 0.05 for int4]"),
    click.option("--device", default="auto", show_default=True, metavar="DEVICE", callback=device_name,
                 help="Where the error and fp8's ranges are measured: auto, cpu, or cuda:N."),
    click.option("--own-weights", is_flag=True, help="Accept weights other than the published ones."),
    overwrite,
)  # fmt: skip


def _build(checkpoint: Path, output: Path, options: dict[str, Any]) -> Build:
    """Describe a build by the options of every model whose weights are streamed, which are taken away."""
    from vcs_export.families.build import Build, Quantization
    from vcs_export.write import check_target, named_after

    text, calibration, overwrite = (options.pop(name) for name in ("text", "calibration", "overwrite"))
    check_target(output, overwrite, checkpoint, text, calibration)
    measured = {name: options.pop(name) for name in ("least_cosine", "most_change", "device")}
    quantization = Quantization(
        options.pop("precision"),
        texts=text_lines(text) if text else (),
        calibration=text_lines(calibration) if calibration else (),
        **measured,
    )
    streamed = {name: options.pop(name) for name in ("target_runtime", "weights", "own_weights")}
    return Build(checkpoint, output, named_after(checkpoint, overwrite), quantization, report=log, **streamed)


@click.command()
@checkpoint
@output
@embedder_options
@click.option("--precision", type=click.Choice(_PRECISIONS),
              help="Precision of matrices; norms, sums and pooling are float32. bf16 needs a GPU, and fp8 "
              "one of compute capability 8.9; int4 is experimental. [default: fp16; fp32 for Gemma 3]"
              )  # fmt: skip
@click.option("--long-text", type=click.Choice(EXPORTED_POLICIES), default="truncate_text", show_default=True,
              help="Treatment of longer texts: mean over windows, cut, or error.")  # fmt: skip
@click.option("--pooling", type=click.Choice(["mean", "last"]),
              help="Pooling of token vectors. [default: as the folder says]")  # fmt: skip
@click.option("--end-token", metavar="TOKEN",
              help="Token at the end of each text, or none. [default: as the folder says]")  # fmt: skip
@click.option("--attention", type=click.Choice(["causal", "bidirectional"]),
              help="Direction of attention, if config.json does not say. [default: as it says]")  # fmt: skip
@_streamed
def decoder(
    checkpoint: Path,
    rehearse: bool,
    output: Path,
    recipe: str | None,
    pooling: str | None,
    attention: str | None,
    **options: Any,
) -> None:
    """Build an embedder from a decoder: Qwen, Llama or Gemma 3.

    The folder is one of sentence-transformers or of transformers. It may be larger than memory. A recipe
    checks the model's settings and known hashes, and knows its licence.

    \b
    Example:
      vcs-runtime export decoder --from Qwen3-Embedding-0.6B --recipe qwen3-embedding-0.6b -o embedder
    """
    if options["own_weights"] and recipe is None:
        raise click.UsageError("--own-weights needs --recipe: without one, no weights are compared")
    from vcs_export.checkpoint.recipe import DecoderRecipe
    from vcs_export.families.decoder import ATTENTIONS, POOLINGS, DecoderOptions, build_decoder_bundle

    build = _build(checkpoint, output, options)
    causal = ATTENTIONS[attention] if attention else None
    settings = DecoderOptions(pooling=POOLINGS[pooling] if pooling else None, causal=causal, **options)
    published = read_recipe(recipe, DecoderRecipe, rehearse)
    _log_licence(published)
    with step_bars() as progress:
        build_decoder_bundle(replace(build, progress=progress), settings, published)
    if spec := _report_error(output):
        log(
            f"{spec.name}: {spec.precision}, vectors of {spec.dimension} numbers, texts of up to "
            f"{spec.max_tokens} tokens, instruction {spec.instruction!r}"
        )
    click.echo(output)


@click.command("nv-embed-v2")
@checkpoint
@output
@click.option("--precision", type=click.Choice(_PRECISIONS), default="fp16", show_default=True,
              help="Precision of matrices; norms, sums and pooling are float32. bf16 needs a GPU, and fp8 "
              "one of compute capability 8.9; int4 is experimental.")  # fmt: skip
@_streamed
def nv_embed_v2(checkpoint: Path, rehearse: bool, output: Path, **options: Any) -> None:
    """Build an embedder from the files of NV-Embed-v2.

    A checkpoint of the published size must match the published hashes; use --own-weights for fine-tuned ones.

    \b
    Example:
      vcs-runtime export nv-embed-v2 --from NV-Embed-v2 -o embedder
    """
    from vcs_export.checkpoint.recipe import NV_EMBED, NvEmbedRecipe
    from vcs_export.families.nv_embed import build_nv_embed_bundle

    build = _build(checkpoint, output, options)
    recipe = read_recipe(NV_EMBED, NvEmbedRecipe, rehearse)
    _log_licence(recipe)
    with step_bars() as progress:
        build_nv_embed_bundle(replace(build, progress=progress), recipe=recipe)
    _report_error(output)
    click.echo(output)


def _log_licence(recipe: PublishedRecipe | None) -> None:
    if recipe is None:
        log("the licence of the weights is not known here: their model card names it")
    else:
        log(f"the weights of {recipe.source} are licensed under {recipe.licence}")


def _report_error(bundle: Path) -> EmbedderSpec | None:
    """Print the quantisation error of a bundle's embedder, and return how it is run."""
    embedder = read_manifest(bundle / MANIFEST).embedder
    if embedder and (error := embedder.quantization_error):
        log(
            f"cosine of {embedder.precision} to unquantised vectors, {error.texts} texts: "
            f"mean {error.cosine_mean:.5f}, least {error.cosine_min:.5f}"
        )
        if error.vcs_change is not None and error.margin_change is not None:
            log(
                f"change of VCS, {error.pairs} pairs made of them: mean {error.vcs_change:.5f}, "
                f"95th percentile {error.vcs_change_p95:.5f}"
            )
            log(
                f"change of the margin: mean {error.margin_change:.5f}, "
                f"95th percentile {error.margin_change_p95:.5f}"
            )
    return embedder
