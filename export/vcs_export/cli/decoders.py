"""`vcs-runtime export decoder` and `export nv-embed-v2`: bundles of models larger than memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcs_export.cli.options import (
    checkpoint,
    device_name,
    embedder_options,
    output,
    overwrite,
    require_builders,
    text_lines,
)
from vcs_export.cli.reporting import log, step_bars
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES, MANIFEST, EmbedderSpec, read_manifest
from vcs_runtime.cli.options import PATH, NumberRange

if TYPE_CHECKING:
    from vcs_export.families.streamed_bundle import Quantization
    from vcs_runtime.bundle.manifest import LongTextPolicy

_PRECISIONS = ("fp16", "bf16", "fp32", "fp8", "int8", "int4")
_SHARED = (
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


def _streamed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every model whose weights are streamed."""
    return reduce(lambda function, option: option(function), reversed(_SHARED), command)


def _quantization(precision: str | None, options: dict[str, Any]) -> Quantization:
    """Take the options that say how a quantised model is measured."""
    from vcs_export.families.streamed_bundle import Quantization

    text, calibration = options.pop("text"), options.pop("calibration")
    return Quantization(
        precision,
        texts=text_lines(text) if text else (),
        calibration=text_lines(calibration) if calibration else (),
        least_cosine=options.pop("least_cosine"),
        most_change=options.pop("most_change"),
        device=options.pop("device"),
    )


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
              help="Token vectors that make the text's. [default: as the folder says]")  # fmt: skip
@click.option("--end-token", metavar="TOKEN",
              help="Token that closes each text, or none. [default: as the folder says]")  # fmt: skip
@click.option("--attention", type=click.Choice(["causal", "bidirectional"]),
              help="Tokens that a token sees, for a model whose files do not tell. [default: as they say]"
              )  # fmt: skip
@_streamed
def decoder(
    checkpoint: Path,
    output: Path,
    recipe: str | None,
    precision: str | None,
    prompt: str | None,
    instruction: str | None,
    dimension: int | None,
    max_tokens: int | None,
    long_text: LongTextPolicy,
    pooling: str | None,
    end_token: str | None,
    attention: str | None,
    own_weights: bool,
    overwrite: bool,
    **options: Any,
) -> None:
    """Build an embedder from a decoder: Qwen, Llama or Gemma 3.

    The folder is one of sentence-transformers or of transformers. It may be larger than memory. A recipe
    checks the model's settings and known hashes, and knows its licence.

    \b
    Example:
      vcs-runtime export decoder --from Qwen3-Embedding-0.6B --recipe qwen3-embedding-0.6b -o embedder
    """
    if own_weights and recipe is None:
        raise click.UsageError("--own-weights needs --recipe: without one, no weights are compared")
    require_builders("export", "exporting")
    from vcs_export.checkpoint.recipe import DecoderRecipe, load_recipe
    from vcs_export.families.decoder import (
        ATTENTIONS,
        POOLINGS,
        DecoderOptions,
        build_decoder_bundle,
        build_from_recipe,
    )
    from vcs_export.write import BundleInfo, check_target, plain_name, real_name

    check_target(output, overwrite, checkpoint, options["text"], options["calibration"])
    settings = DecoderOptions(
        pooling=POOLINGS[pooling] if pooling else None,
        prompt=prompt,
        instruction=instruction,
        dimension=dimension,
        max_tokens=max_tokens,
        long_text=long_text,
        end_token=end_token,
        causal=ATTENTIONS[attention] if attention else None,
    )
    quantization = _quantization(precision, options)
    with step_bars() as progress:
        if recipe is None:
            log("the licence of the weights is not known here: their model card names it")
            name = real_name(checkpoint)
            info = BundleInfo(plain_name(checkpoint), "NOASSERTION", name, replace=overwrite)
            build_decoder_bundle(
                checkpoint, output, info, quantization, settings, progress=progress, report=log, **options
            )
        else:
            named = load_recipe(Path(recipe) if recipe.endswith(".toml") else recipe, DecoderRecipe)
            log(f"the weights of {named.source} are licensed under {named.licence}")
            build_from_recipe(
                named,
                checkpoint,
                output,
                quantization,
                settings,
                own_weights=own_weights,
                replace_target=overwrite,
                progress=progress,
                report=log,
                **options,
            )
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
def nv_embed_v2(
    checkpoint: Path, output: Path, precision: str, own_weights: bool, overwrite: bool, **options: Any
) -> None:
    """Build an embedder from the files of NV-Embed-v2.

    A checkpoint of the published size must match the published hashes; use --own-weights for fine-tuned ones.

    \b
    Example:
      vcs-runtime export nv-embed-v2 --from NV-Embed-v2 -o embedder
    """
    require_builders("export", "exporting")
    from vcs_export.checkpoint.recipe import NV_EMBED, NvEmbedRecipe, load_recipe
    from vcs_export.families.nv_embed import build_from_recipe
    from vcs_export.write import check_target

    check_target(output, overwrite, checkpoint, options["text"], options["calibration"])
    recipe = load_recipe(NV_EMBED, NvEmbedRecipe)
    log(f"the weights of {recipe.source} are licensed under {recipe.licence}")
    quantization = _quantization(precision, options)
    with step_bars() as progress:
        build_from_recipe(
            recipe,
            checkpoint,
            output,
            quantization,
            own_weights=own_weights,
            replace=overwrite,
            progress=progress,
            report=log,
            **options,
        )
    _report_error(output)
    click.echo(output)


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
