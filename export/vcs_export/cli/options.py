"""Options that the commands share, and the packages that they need."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_runtime.errors import InputError
from vcs_runtime.inference.device import split_device
from vcs_runtime.util.extras import require

PATH = click.Path(path_type=Path)
# Those of every `export` command.
checkpoint = click.option(
    "--from", "checkpoint", type=PATH, required=True, metavar="DIR", help="Folder of the model's files."
)
output = click.option(
    "-o", "--output", type=PATH, required=True, metavar="BUNDLE", help="Folder of the new bundle."
)
overwrite = click.option("--overwrite", is_flag=True, help="Replace an existing bundle.")


def device_name(context: click.Context, option: click.Parameter, value: str) -> str:
    """Take the name of a device, as the callback of an option; raises BadParameter for another name."""
    try:
        split_device(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def require_builders(extra: str, purpose: str) -> None:
    """Raise MissingExtraError unless the packages that build bundles are installed."""
    for module in ("onnx_ir", "safetensors"):
        require(module, extra, purpose)


def text_lines(path: Path) -> list[str]:
    """Read the lines of a text file that are not blank. Raises InputError."""
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None
    if not lines:
        raise InputError(f"{path}: no text in it")
    return lines
