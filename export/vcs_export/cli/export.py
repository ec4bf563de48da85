"""`vcs-runtime export`: from a model's own files to a bundle, once, before anything is scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcs_runtime.bundle.manifest import MANIFEST, read_manifest
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import DeviceError, InputError

if TYPE_CHECKING:
    from rich.progress import TaskID


@click.group()
def export() -> None:
    """Build a bundle from a model's files. Nothing is downloaded; needs `vcs-runtime[export]`."""


@export.command()
@click.option("--from", "source", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="config.json with model.safetensors or a ready-made model.onnx, or its path.")  # fmt: skip
@click.option("--tokenizer", type=click.Path(path_type=Path), metavar="FILE",
              help="xlm-roberta-base's tokenizer.json, if it is not in DIR.")  # fmt: skip
@click.option("--to", "target", type=click.Path(path_type=Path), required=True, metavar="BUNDLE",
              help="The folder to write.")  # fmt: skip
@click.option("--precision", type=click.Choice(["fp32", "fp16", "int8"]),
              help="Of weights and arithmetic; by default fp32, or what a ready-made graph has.")  # fmt: skip
@click.option("--recipe", metavar="NAME|FILE",
              help="What the model must be: sat-3l-sm, sat-12l-sm, sat-3l or a TOML file.")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="T",
              help="Default: the recipe's, or the authors' for its kind (not LoRA: 0.5).")  # fmt: skip
@click.option("--text", type=click.Path(path_type=Path), metavar="FILE",
              help="For int8: texts, one a line, to measure its agreement with fp32 on.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
def sat(
    source: Path,
    tokenizer: Path | None,
    target: Path,
    precision: str | None,
    recipe: str | None,
    threshold: float | None,
    text: Path | None,
    force: bool,
) -> None:
    """Build a segmenter's bundle from a SaT (Segment Any Text) model, without PyTorch.

    With a recipe, the model's settings and known hashes are checked.
    """
    try:
        from vcs_export.checkpoint.recipe import load_sat_recipe
        from vcs_export.families.sat import build_from_recipe, build_sat_bundle
    except ImportError as error:
        raise DeviceError(f"exporting needs `vcs-runtime[export]` ({error})") from None
    texts = _lines(text) if text else []
    if recipe is not None:
        named = load_sat_recipe(Path(recipe) if recipe.endswith(".toml") else recipe)
        build_from_recipe(
            named,
            source,
            target,
            tokenizer=tokenizer,
            threshold=threshold,
            precision=precision,
            texts=texts,
            replace=force,
        )
    else:
        build_sat_bundle(
            source,
            target,
            name=_plain(source.resolve().name),
            threshold=threshold,
            licence="NOASSERTION",
            source=source.resolve().name,
            tokenizer=tokenizer,
            precision=precision,
            texts=texts,
            replace=force,
        )
    segmenter = open_bundle(target).manifest.segmenter
    if segmenter and (model := segmenter.model):
        click.echo(f"vcs-runtime: {model.name}: {model.precision}, threshold {model.threshold:g}", err=True)
        if model.precision == "int8":
            found = "neither sets any" if model.agreement is None else f"{model.agreement:.4f}"
            click.echo(f"vcs-runtime: boundary F1 of int8 against fp32: {found}", err=True)
    click.echo(target)


def _plain(name: str) -> str:
    """A folder's name as a signature may hold it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


@export.command()
@click.option("--from", "source", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="A folder of sentence-transformers: model.safetensors, tokenizer.json.")  # fmt: skip
@click.option("--to", "target", type=click.Path(path_type=Path), required=True, metavar="BUNDLE",
              help="The folder to write.")  # fmt: skip
@click.option("--long-text", type=click.Choice(["window_mean", "truncate", "error"]), default="window_mean",
              show_default=True, help="Texts beyond the model's window: averaged over windows, cut, "
              "refused.")  # fmt: skip
@click.option("--optimum-python", type=click.Path(path_type=Path), metavar="PATH",
              help="Let optimum export it: an interpreter that has optimum-onnx and PyTorch.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
def encoder(source: Path, target: Path, long_text: str, optimum_python: Path | None, force: bool) -> None:
    """Build an embedder's bundle from a sentence-transformers encoder.

    BERT, RoBERTa, XLM-RoBERTa, MPNet and DistilBERT without PyTorch; any other encoder by optimum, in an
    environment of its own.
    """
    try:
        from vcs_export.families.sentence_encoder import build_sentence_bundle
    except ImportError as error:
        raise DeviceError(f"exporting needs `vcs-runtime[export]` ({error})") from None
    folder = source.resolve().name
    build_sentence_bundle(
        source,
        target,
        name=_plain(folder),
        licence="NOASSERTION",
        source=folder,
        long_text=long_text,
        optimum_python=optimum_python,
        replace=force,
    )
    click.echo(target)


@export.command("nv-embed-v2")
@click.option("--from", "source", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="config.json, tokenizer.json and the safetensors files.")  # fmt: skip
@click.option("--to", "target", type=click.Path(path_type=Path), required=True, metavar="BUNDLE",
              help="The folder to write.")  # fmt: skip
@click.option("--precision", type=click.Choice(["fp16", "bf16", "fp32", "fp8", "int8", "int4"]),
              default="fp16", show_default=True, help="Of matrices; sums, norms and pooling are float32. "
              "bf16 needs a GPU, fp8 TensorRT; int8 has 8-bit weights; int4 is experimental.")  # fmt: skip
@click.option("--target", "engine", type=click.Choice(["ort", "tensorrt"]),
              help="The engine whose form the graph has.  [default: ort; of fp8: tensorrt]")  # fmt: skip
@click.option("--weights", type=click.Choice(["link", "copy"]), default="link", show_default=True,
              help="Share DIR's files by hard links where they are used as they are, or copy.")  # fmt: skip
@click.option("--text", type=click.Path(path_type=Path), metavar="FILE",
              help="For int8, int4, fp8: texts, one a line, to measure the loss on; else the "
              "demo's.")  # fmt: skip
@click.option("--calibration", type=click.Path(path_type=Path), metavar="FILE",
              help="For fp8: texts, one a line, to measure ranges of inputs on; else our own.")  # fmt: skip
@click.option("--least-cosine", type=click.FloatRange(-1, 1), metavar="X",
              help="Refuse a mean cosine to unquantised vectors below X.  [default: 0.99; of int4: none]"
              )  # fmt: skip
@click.option("--own-weights", is_flag=True, help="They are not the published ones: do not compare hashes.")
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
def nv_embed_v2(
    source: Path,
    target: Path,
    precision: str,
    engine: str | None,
    weights: str,
    text: Path | None,
    calibration: Path | None,
    least_cosine: float | None,
    own_weights: bool,
    force: bool,
) -> None:
    """Build an embedder's bundle from the files of NV-Embed-v2, without PyTorch.

    A model of the published one's size must be the published one; others are taken as one's own.
    """
    try:
        from vcs_export.checkpoint.recipe import load_nv_embed_recipe
        from vcs_export.families.nv_embed import build_from_recipe
    except ImportError as error:
        raise DeviceError(f"exporting needs `vcs-runtime[export]` ({error})") from None
    recipe = load_nv_embed_recipe()
    click.echo(f"vcs-runtime: the weights of {recipe.source} are licensed under {recipe.licence}", err=True)
    with _steps() as progress:
        build_from_recipe(
            recipe,
            source,
            target,
            precision=precision,
            target_runtime=engine or ("tensorrt" if precision == "fp8" else "ort"),
            weights=weights,
            texts=_lines(text) if text else (),
            calibration=_lines(calibration) if calibration else (),
            least_cosine=least_cosine,
            own_weights=own_weights,
            replace=force,
            progress=progress,
        )
    embedder = read_manifest(target / MANIFEST).embedder
    if embedder and (loss := embedder.quantization_error):
        click.echo(
            f"vcs-runtime: cosine of {precision} to unquantised vectors, {loss.texts} texts: "
            f"mean {loss.cosine_mean:.5f}, least {loss.cosine_min:.5f}",
            err=True,
        )
        if loss.vcs_change is not None:
            click.echo(
                f"vcs-runtime: mean change of VCS, {loss.pairs} pairs of them: {loss.vcs_change:.5f}",
                err=True,
            )
    click.echo(target)


@export.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--device", default="cpu", show_default=True, help="Where to run it: cpu, cuda:N, auto.")
@click.option("--card", type=click.Path(path_type=Path), metavar="README.md",
              help="NV-Embed-v2's model card: the scores of its example must come out.")  # fmt: skip
def verify(bundle: Path, device: str, card: Path | None) -> None:
    """Run the embedder of BUNDLE: finite, unit length, independent of batch, order and padding."""
    try:
        from vcs_export.checks.verify import examine_embedder
    except ImportError as error:
        raise DeviceError(f"verifying needs `vcs-runtime[export]` ({error})") from None
    holds = True
    for check in examine_embedder(open_bundle(bundle), device, card):
        click.echo(f"{'ok' if check.holds else 'FAILED':6} {check.name}: {check.detail}")
        holds &= check.holds
    if not holds:
        raise click.exceptions.Exit(1)


@contextmanager
def _steps() -> Iterator[Callable[[str, int, int], None]]:
    """Yield what is told a step, its bytes so far and in all: on a terminal each step gets a bar."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[tuple[str, int], TaskID] = {}

        def tell(step: str, done: int, total: int) -> None:
            if (step, total) not in tasks:
                tasks[step, total] = bars.add_task(step, total=total)
            bars.update(tasks[step, total], completed=done)

        yield tell


def _lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank. Raises InputError if there is none."""
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None
    if not lines:
        raise InputError(f"{path}: no text in it")
    return lines
