"""`vcs-runtime export`: from a model's own files to a bundle, once, before anything is scored."""

from __future__ import annotations

import re
from pathlib import Path

import click

from vcs_runtime.errors import DeviceError, InputError


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
        from vcs_export.recipe import load_sat_recipe
        from vcs_export.sat import build_from_recipe, build_sat_bundle
        from vcs_runtime.bundle import open_bundle
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


def _lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank. Raises InputError if there is none."""
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None
    if not lines:
        raise InputError(f"{path}: no text in it")
    return lines
