"""Code shared by the commands: options, needed packages, and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.bundle.paths import how_to_download
from vcs_runtime.cli.options import PATH, together
from vcs_runtime.errors import DeviceError, InputError, MissingExtraError
from vcs_runtime.inference.device import choose_device, split_device
from vcs_runtime.util.extras import require
from vcs_runtime.util.presence import is_there
from vcs_runtime.util.progress import shown
from vcs_runtime.util.reading import read_whole

if TYPE_CHECKING:
    from rich.progress import TaskID

    from vcs_export.checkpoint.recipe import R

Command = Callable[..., None]
#: Bytes of weights with which a CPU would take many minutes.
_LARGE = 2 << 30


def _downloaded(context: click.Context, parameter: click.Parameter, path: Path) -> Path:
    """Refuse a missing folder, such as a model's published name."""
    if is_there(path):
        return path
    raise click.BadParameter(
        f"{path}: no such folder{how_to_download(str(path), context.info_name)}"
    )


def checkpoint(command: Command) -> Command:
    """Add the option for the model's files to a command that needs the builders' packages."""

    @wraps(command)
    def run(**options: Any) -> None:
        require_builders("export", "exporting")
        command(**options)

    return _source(run)


_source = click.option(
    "--from",
    "checkpoint",
    type=PATH,
    required=True,
    callback=_downloaded,
    metavar="DIR",
    help="Folder of the model's files.",
)
output = click.option(
    "-o", "--output", type=PATH, required=True, metavar="BUNDLE", help="Folder of the new bundle."
)

# The options of every embedder from a sentence-transformers folder.
embedder_options = together(
    click.option(
        "--recipe",
        metavar="NAME|FILE",
        help=(
            "Recipe of a published model that the files must match: its name in lower case, "
            "or a TOML file."
        ),
    ),
    click.option(
        "--prompt",
        metavar="NAME",
        help=(
            "Name of a prompt in the folder, to put before every text. [default: the "
            "recipe's, or the folder's default prompt]"
        ),
    ),
    click.option(
        "--instruction", metavar="TEXT", help="Words to put before every text, instead of a prompt."
    ),
    click.option(
        "--dimension",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of vector dimensions to keep (Matryoshka). [default: as in the folder]",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=3),
        metavar="N",
        help="Maximum length of an input in tokens. [default: as in the recipe or the folder]",
    ),
)


def device_name(context: click.Context, option: click.Parameter, value: str) -> str:
    """Check a device name in an option's callback; raise BadParameter if the name is invalid."""
    try:
        split_device(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def require_builders(extra: str, purpose: str) -> None:
    """Raise MissingExtraError unless the packages that build bundles are installed."""
    for module in ("onnx_ir", "safetensors"):
        require(module, extra, purpose)


def read_recipe(recipe: str | None, kind: type[R]) -> R | None:
    """Read a recipe, if one is named."""
    from vcs_export.checkpoint.recipe import load_recipe

    return None if recipe is None else load_recipe(recipe, kind)


def text_lines(path: Path) -> list[str]:
    """Read the lines of a text file that are not blank. Raises InputError."""
    try:
        lines = [line for line in read_whole(path).decode().splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None
    if not lines:
        raise InputError(f"{path}: the file has no text")
    return lines


def log(line: str) -> None:
    """Print one line about a step to standard error."""
    click.echo(f"vcs-runtime: {line}", err=True)


def record_fitness(path: Path, device: str = "cpu", say: Callable[[str], None] = log) -> None:
    """Measure how fit a bundle's embedder is for VCS, write it into the bundle, and say it."""
    from vcs_runtime.inference import fitness
    from vcs_runtime.inference.embedder import Embedder, embedder_spec

    opened = open_bundle(path)
    try:
        spec = embedder_spec(opened)
        is_large = opened.weights_size(spec) > _LARGE
        if is_large and not choose_device(device).is_gpu:
            raise DeviceError("it would take long on a CPU")
        with Embedder.open(opened, device) as embedder:
            bundle = fitness.with_fitness(opened, fitness.measure(embedder.embed))
    except (DeviceError, MissingExtraError) as error:
        say(f"fitness is not measured: {error}: `vcs-runtime export verify` measures it")
        return
    for line in fitness.fitness_lines(embedder_spec(bundle)):
        say(line)
    if problem := fitness.describe_unfit(bundle):
        say(f"WARNING: {problem}")
    if bundle.manifest != opened.manifest:
        try:
            fitness.record(bundle)
        except OSError as error:
            say(f"fitness is not added: {error}")


@contextmanager
def step_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a `vcs_export.write.Progress` that draws a bar for each step on a terminal.

    Without a terminal it draws nothing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with shown(Progress(*columns, console=console, disable=not console.is_terminal)) as bars:
        tasks: dict[tuple[str, int], TaskID] = {}

        def advance(step: str, done: int, total: int) -> None:
            if (step, total) not in tasks:
                tasks[step, total] = bars.add_task(step, total=total)
            bars.update(tasks[step, total], completed=done)

        yield advance
