"""`vcs-runtime export`: build a bundle from a model's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcs_export.cli.options import (
    checkpoint,
    device_name,
    embedder_options,
    log,
    output,
    read_recipe,
    record_fitness,
    require_builders,
    step_bars,
    text_lines,
)
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES, MANIFEST, EmbedderSpec, read_manifest
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli.options import PATH, NumberRange, SectionedCommand, overwrite, together

if TYPE_CHECKING:
    from vcs_export.checkpoint.recipe import PublishedRecipe
    from vcs_export.families.build import Build

_PRECISIONS = ("fp16", "bf16", "fp32", "int8")


@dataclass(frozen=True)
class _Streaming:
    """The options of every model whose weights are streamed."""

    precision: str | None
    weights: str
    text: Path | None
    least_cosine: float | None
    most_change: float | None
    device: str
    own_weights: bool
    overwrite: bool

    def build(self, checkpoint: Path, output: Path) -> Build:
        """Describe the build of a bundle, after a check of its path."""
        from vcs_export.families.build import Build, Quantization
        from vcs_export.write import check_target, named_after

        check_target(output, self.overwrite, checkpoint, self.text)
        quantization = Quantization(
            self.precision,
            texts=text_lines(self.text) if self.text else (),
            least_cosine=self.least_cosine,
            most_change=self.most_change,
            device=self.device,
        )
        return Build(
            checkpoint,
            output,
            named_after(checkpoint, self.overwrite),
            quantization,
            weights=self.weights,
            own_weights=self.own_weights,
            report=log,
        )


_streaming_options = together(
    together(
        click.option(
            "--weights",
            type=click.Choice(["link", "copy"]),
            default="link",
            help="How unchanged weights enter the bundle: as hard links, or as copies.",
        ),
        click.option(
            "--text",
            type=PATH,
            metavar="FILE",
            help=(
                "File with one text per line, to measure the error of int8. [default: the "
                "demo's texts]"
            ),
        ),
        click.option(
            "--least-cosine",
            type=NumberRange(-1, 1),
            metavar="X",
            help="Minimum mean cosine to unquantised vectors. [default: 0.99]",
        ),
        click.option(
            "--most-change",
            type=NumberRange(0, 1),
            metavar="X",
            help="Maximum mean change of VCS by quantisation; 1 accepts any. [default: 0.01]",
        ),
        click.option(
            "--device",
            default="auto",
            metavar="DEVICE",
            callback=device_name,
            help="Device that measures quantisation error and fitness: auto, cpu, or cuda:N.",
        ),
        click.option(
            "--own-weights", is_flag=True, help="Accept weights other than the published ones."
        ),
        advanced=True,
    ),
    overwrite,
)


def _streamed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `_Streaming` to a command, which gets them as the argument `streaming`."""

    @wraps(command)
    def run(**options: Any) -> None:
        values = {item.name: options.pop(item.name) for item in fields(_Streaming)}
        command(streaming=_Streaming(**values), **options)

    return _streaming_options(run)


@click.command(cls=SectionedCommand)
@checkpoint
@output
@embedder_options
@click.option(
    "--precision",
    type=click.Choice(_PRECISIONS),
    help=(
        "Precision of matrices; norms, sums and pooling are fp32. bf16 needs a GPU. "
        "[default: fp16, or fp32 for Gemma 3]"
    ),
)
@click.option(
    "--long-text",
    type=click.Choice(EXPORTED_POLICIES),
    default="truncate_text",
    help=(
        "What to do with texts longer than the model's window: average over windows, "
        "cut the text (special tokens stay), or refuse it."
    ),
)
@together(
    click.option(
        "--pooling",
        type=click.Choice(["mean", "last"]),
        help="Pooling of token vectors. [default: as in the folder]",
    ),
    click.option(
        "--end-token",
        metavar="TOKEN",
        help="Token to put at the end of each text, or none. [default: as in the folder]",
    ),
    click.option(
        "--attention",
        type=click.Choice(["causal", "bidirectional"]),
        help="Direction of attention, if config.json has none. [default: as in config.json]",
    ),
    advanced=True,
)
@_streamed
def decoder(
    checkpoint: Path,
    output: Path,
    recipe: str | None,
    pooling: str | None,
    attention: str | None,
    streaming: _Streaming,
    **options: Any,
) -> None:
    """Build an embedder from a decoder: Qwen, Llama or Gemma 3.

    DIR is a folder of sentence-transformers or of transformers, and may be larger than memory. A
    recipe checks the model's settings and known hashes, and names its licence.

    \b
    Example:
      vcs-runtime export decoder --from Qwen3-Embedding-0.6B \\
        --recipe qwen3-embedding-0.6b -o judge
    """
    if streaming.own_weights and recipe is None:
        raise click.UsageError("--own-weights needs --recipe, which names the published weights")
    from vcs_export.checkpoint.recipe import DecoderRecipe
    from vcs_export.families.decoder import (
        ATTENTIONS,
        POOLINGS,
        DecoderOptions,
        build_decoder_bundle,
    )

    build = streaming.build(checkpoint, output)
    settings = DecoderOptions(
        pooling=POOLINGS[pooling] if pooling else None,
        causal=ATTENTIONS[attention] if attention else None,
        **options,
    )
    published = read_recipe(recipe, DecoderRecipe)
    _log_licence(published)
    with step_bars() as progress:
        build_decoder_bundle(replace(build, progress=progress), settings, published)
    embedder = read_manifest(output / MANIFEST).embedder
    if embedder:
        _log_quantization_error(embedder)
        log(
            f"{embedder.name}: {embedder.precision}, vectors of {embedder.dimension} numbers, texts"
            f" of up to {embedder.max_tokens} tokens, instruction {embedder.instruction!r}"
        )
    record_fitness(output, streaming.device)
    click.echo(output)


@click.command("nv-embed-v2", cls=SectionedCommand)
@checkpoint
@output
@click.option(
    "--precision",
    type=click.Choice(_PRECISIONS),
    default="fp16",
    help="Precision of matrices; norms, sums and pooling are fp32. bf16 needs a GPU.",
)
@_streamed
def nv_embed_v2(checkpoint: Path, output: Path, streaming: _Streaming) -> None:
    """Build an embedder from the files of NV-Embed-v2.

    Weights of the published size must match the published hashes. For fine-tuned weights, add
    --own-weights.

    \b
    Example:
      vcs-runtime export nv-embed-v2 --from NV-Embed-v2 -o embedder
    """
    from vcs_export.checkpoint.recipe import NV_EMBED, NvEmbedRecipe
    from vcs_export.families.decoder import build_nv_embed_bundle

    build = streaming.build(checkpoint, output)
    recipe = read_recipe(NV_EMBED, NvEmbedRecipe)
    _log_licence(recipe)
    with step_bars() as progress:
        build_nv_embed_bundle(replace(build, progress=progress), recipe=recipe)
    embedder = read_manifest(output / MANIFEST).embedder
    if embedder:
        _log_quantization_error(embedder)
    record_fitness(output, streaming.device)
    click.echo(output)


def _log_licence(recipe: PublishedRecipe | None) -> None:
    if recipe is None:
        log("the licence of the weights is unknown: see the model card")
    else:
        log(f"the weights of {recipe.source} are licensed under {recipe.licence}")


def _log_quantization_error(embedder: EmbedderSpec) -> None:
    """Print the quantisation error of an embedder, if it has one."""
    error = embedder.quantization_error
    if error is None:
        return
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


@click.group()
def export() -> None:
    """Build a bundle from a model's files.

    These commands need `vcs-runtime[export]`, but neither PyTorch nor a network.
    """


export.add_command(decoder)
export.add_command(nv_embed_v2)


@export.command(cls=SectionedCommand)
@checkpoint
@output
@click.option(
    "--tokenizer",
    type=PATH,
    metavar="FILE",
    help="Tokenizer file of xlm-roberta-base. [default: tokenizer.json in the folder]",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "int8"]),
    default="fp32",
    help="Precision of weights and arithmetic.",
)
@click.option(
    "--recipe",
    metavar="NAME|FILE",
    help=(
        "Recipe of a published model that the files must match: sat-3l-sm, sat-12l-sm, "
        "sat-3l, or a TOML file."
    ),
)
@click.option(
    "--threshold",
    type=NumberRange(0, 1, min_open=True, max_open=True),
    metavar="T",
    help=(
        "Probability above which a character ends a segment; 0.5 for models adapted "
        "with LoRA. [default: the recipe's or the authors']"
    ),
)
@click.option(
    "--text",
    type=PATH,
    metavar="FILE",
    help="File with one text per line, to measure the error of int8. [default: the demo's texts]",
)
@overwrite
def sat(
    checkpoint: Path,
    output: Path,
    precision: str,
    recipe: str | None,
    text: Path | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Build a segmenter from a SaT (Segment Any Text) model.

    DIR holds config.json and model.safetensors. A recipe checks the model's settings and known
    hashes.

    \b
    Example:
      vcs-runtime export sat --from sat-12l-sm \\
        --tokenizer xlm-roberta-base/tokenizer.json -o sat
    """
    from vcs_export.checkpoint.recipe import SatRecipe
    from vcs_export.families.build import Build, Quantization
    from vcs_export.families.sat import SatOptions, build_sat_bundle
    from vcs_export.write import check_target, named_after

    settings = SatOptions(**options)
    check_target(output, overwrite, checkpoint, settings.tokenizer, text)
    quantization = Quantization(precision, text_lines(text) if text else ())
    published = read_recipe(recipe, SatRecipe)
    info = named_after(checkpoint, overwrite)
    build = Build(checkpoint, output, info, quantization, report=log)
    build_sat_bundle(build, settings, published)
    segmenter = open_bundle(output).manifest.segmenter
    model = segmenter.model if segmenter else None
    if model:
        log(f"{model.name}: {model.precision}, threshold {model.threshold:g}")
        if model.precision == "int8":
            f1 = "neither finds any" if model.agreement is None else f"{model.agreement:.4f}"
            log(f"boundary F1 of int8 against fp32: {f1}")
    click.echo(output)


@export.command(cls=SectionedCommand)
@checkpoint
@output
@embedder_options
@click.option(
    "--long-text",
    type=click.Choice(EXPORTED_POLICIES),
    default="window_mean",
    help=(
        "What to do with texts longer than the model's window: average over windows, "
        "cut the text (special tokens stay), or refuse it."
    ),
)
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "max", "lasttoken"]),
    help="Pooling of token vectors, if there is no modules.json. [default: as in the folder]",
)
@click.option(
    "--optimum-python",
    type=PATH,
    metavar="PATH",
    help="Python interpreter with optimum-onnx and PyTorch, to export by optimum.",
)
@overwrite
def encoder(
    checkpoint: Path,
    output: Path,
    recipe: str | None,
    optimum_python: Path | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Build an embedder from a sentence-transformers encoder.

    BERT, RoBERTa, XLM-RoBERTa, MPNet, DistilBERT and ModernBERT are exported without PyTorch. Any
    other encoder is exported by optimum, in a separate environment. A recipe checks the model's
    settings, and names its licence and the words to put before texts.

    \b
    Example:
      vcs-runtime export encoder --from multilingual-e5-base \\
        --recipe multilingual-e5-base -o judge
    """
    from vcs_export.checkpoint.recipe import SentenceRecipe
    from vcs_export.checkpoint.sentence_folder import other_heads
    from vcs_export.families.build import Build, EmbedderOptions
    from vcs_export.families.sentence_encoder import build_sentence_bundle
    from vcs_export.write import check_target, named_after

    if recipe is not None and optimum_python is not None:
        raise click.UsageError("--recipe and --optimum-python cannot be combined")
    if recipe is not None and options["pooling"] is not None:
        raise click.UsageError("--recipe and --pooling cannot be combined")
    check_target(output, overwrite, checkpoint)
    settings = EmbedderOptions(**options)
    if published := read_recipe(recipe, SentenceRecipe):
        log(f"the weights of {published.source} are licensed under {published.licence}")
    build = Build(checkpoint, output, named_after(checkpoint, overwrite), report=log)
    build_sentence_bundle(build, settings, published, optimum_python=optimum_python)
    if heads := other_heads(checkpoint):
        log(f"left out, because they are not part of a text's vector: {', '.join(heads)}")
    record_fitness(output)
    click.echo(output)


@export.command(cls=SectionedCommand)
@click.argument("bundle", type=PATH)
@click.option(
    "--device",
    default="cpu",
    metavar="DEVICE",
    callback=device_name,
    help=(
        "Device that runs the models: auto (a GPU if possible), cpu, openvino, "
        "openvino:fp32, cuda:N, cuda:N:fp32, or tensorrt:N."
    ),
)
@click.option(
    "--card",
    type=PATH,
    metavar="README.md",
    help="Model card of NV-Embed-v2, whose scores are compared.",
)
def verify(bundle: Path, device: str, card: Path | None) -> None:
    """Check the models of a bundle by running them.

    Vectors must be finite, of unit length, and independent of batch, order and padding. Models must
    agree with their proofs; a missing proof is added. The exit code is 1 if a check fails.

    At the end, built-in texts show how fit the embedder is for VCS. The result and a calibration
    are written into the bundle.

    \b
    Example:
      vcs-runtime export verify embedder --card NV-Embed-v2/README.md
    """
    require_builders("export", "verifying")
    from vcs_export.checks.proofs import verify_proofs
    from vcs_export.checks.verify import verify_embedder

    opened = open_bundle(bundle)
    checks = verify_proofs(opened, device)
    if card or opened.part("embedder") or not opened.part("segmenter"):
        checks = chain(verify_embedder(opened, device, card), checks)
    failed = False
    for check in checks:
        click.echo(f"{'ok' if check.holds else 'FAILED':6} {check.name}: {check.detail}")
        if not check.holds:
            failed = True
    if opened.part("embedder") and not failed:
        record_fitness(bundle, device, click.echo)
    click.get_current_context().exit(int(failed))
