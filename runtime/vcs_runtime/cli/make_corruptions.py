"""`vcs-runtime experiment make-corruptions`: data for `corruption`, from descriptions of your own."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, bundle, device, max_read_mb, output_folder, segmenter, usage_errors
from vcs_runtime.cli.results import exit_if
from vcs_runtime.errors import InputError
from vcs_runtime.experiments.datasets import corruptions
from vcs_runtime.experiments.datasets.texts import Problems, read_descriptions
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.segmentation.segmenter import Segmenter
from vcs_runtime.util.progress import progress_bar


@click.command("make-corruptions")
@click.option("--references", "source", type=PATH, required=True, metavar="FILE",
              help="File of reference texts by id, such as JSON {id: text}.")  # fmt: skip
@click.option("--seed", type=int, default=SEED, show_default=True, metavar="N", help="Random seed.")
@output_folder(help="Data folder to create.")
@max_read_mb
@bundle
@segmenter
@device
def make_corruptions(source: Path, seed: int, output: Path, bundle: str, segmenter: str, device: str) -> None:
    """Corrupt your own descriptions, as data for `corruption`.

    Sentences are left out, added, repeated and reordered. The result is a data folder.

    \b
    Example:
      vcs-runtime experiment make-corruptions --references refs.json -o corrupted
    """
    problems = Problems(warn)
    texts = read_descriptions(source, problems)
    several = [name for name, text in texts.items() if not isinstance(text, str)]
    if several:
        raise InputError(f"{source}: {several[0]}: several references; only a single text can be corrupted")
    if (output / "comparison").exists():
        raise InputError(f"{output / 'comparison'}: it exists; choose another --output")
    with usage_errors():
        opened = Segmenter.open(bundle, device, use=segmenter)
    with opened, progress_bar(len(texts), "corrupting", "texts") as advance:
        count = corruptions.make({name: str(text) for name, text in texts.items()}, opened, output, problems,
                                 seed=seed, advance=advance)  # fmt: skip
    click.echo(f"{count} scenes in {output}")
    exit_if(problems.messages)
