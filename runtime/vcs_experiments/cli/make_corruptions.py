"""`vcs-runtime experiment make-corruptions`: data for `corruption` from your own descriptions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from vcs_experiments.cli.results import exit_if
from vcs_experiments.datasets import corruptions
from vcs_experiments.datasets.corruptions import Rewrite, Segments
from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.rewriting.writing import AUTHOR, TRIES, Rewriter
from vcs_runtime._version import __version__
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    PATH,
    SectionedCommand,
    bundle,
    check_resume,
    device,
    max_read_mb,
    output_folder,
    overwrite,
    resume,
    segmenter,
    together,
    usage_errors,
)
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.segmentation.segmenter import Segmenter
from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.presence import is_there
from vcs_runtime.util.progress import progress_bar
from vcs_visil.cli.model import ModelOptions, writer_options

_RECORD = "corruptions.json"


@click.command("make-corruptions", cls=SectionedCommand)
@click.option(
    "--references",
    "source",
    type=PATH,
    required=True,
    metavar="FILE",
    help="File of reference texts by id, such as JSON {id: text}.",
)
@click.option("--seed", type=int, default=SEED, show_default=True, metavar="N", help="Random seed.")
@output_folder(help="Data folder to create.")
@max_read_mb
@resume
@overwrite
@together(bundle, segmenter, device, section="Models")
@writer_options
@together(
    click.option(
        "--tries",
        type=click.IntRange(min=1),
        default=TRIES,
        show_default=True,
        metavar="N",
        help="How often the model is asked for a rewrite if its answers cannot be used.",
    ),
    click.option(
        "--author",
        type=click.IntRange(min=2),
        metavar="N",
        help="Only let the model tell each scene as author N, as data for `authors`.",
    ),
    section="Language model",
)
def make_corruptions(
    source: Path,
    seed: int,
    output: Path,
    resume: bool,
    overwrite: bool,
    bundle: str,
    segmenter: str,
    device: str,
    tries: int,
    author: int | None,
    asked: ModelOptions,
) -> None:
    """Corrupt your own descriptions, as data for `corruption`.

    Sentences are left out, added, repeated and reordered. With a language model, the data folder
    has valid rewrites, distortions and summaries, too. The model answers with the likeliest token
    each time, and runs on the device that its configuration names.

    \b
    Examples:
      vcs-runtime experiment make-corruptions --references refs.json -o corrupted
      vcs-runtime experiment make-corruptions --references refs.json -o set \\
        --model vllm:http://localhost:8000
      vcs-runtime experiment make-corruptions --references refs.json -o set \\
        --model genai:DIR --author 2
    """
    check_resume(resume, overwrite)
    problems = Problems(warn)
    texts = read_descriptions(source, problems)
    several = [name for name, text in texts.items() if not isinstance(text, str)]
    if several:
        raise InputError(
            f"{source}: {several[0]}: several references; only a single text can be corrupted"
        )
    if author:
        if not asked.model:
            raise click.UsageError("--author needs --model")
        rewriter = Rewriter(asked.open(), lambda text: None, tries)
        job = partial(rewriter.run, resume=resume, overwrite=overwrite, kinds=(AUTHOR,))
        told = {name: str(text) for name, text in texts.items()}
        _write_author(told, source, output, author, job, problems)
        exit_if(problems.messages)
        return
    _check_folder(output, texts, resume or overwrite)
    writer = asked.open() if asked.model else None
    with usage_errors():
        config = ScorerConfig(bundle, segmenter=segmenter)
        opened = Segmenter.open(config.bundle, device, use=str(config.segmenter))
    with opened:
        segments = corruptions.split(
            {name: str(text) for name, text in texts.items()}, opened, problems
        )
        record: dict[str, Any] = {"made by": f"vcs-runtime {__version__}", "seed": seed}
        record |= {"segmenter": "|".join(opened.signature_fields), "scenes": len(segments)}
        output.mkdir(parents=True, exist_ok=True)
        rewrites: dict[str, list[Rewrite]] = {}
        if writer:

            def sentences(text: str) -> int | None:
                found = opened.sentences(text, "text")
                return None if found is None else len(found)

            rewriter, before = Rewriter(writer, sentences, tries), len(problems.messages)
            joined = {name: " ".join(pieces) for name, pieces in segments.items()}
            rewrites = rewriter.run(
                joined, source, output, problems, resume=resume, overwrite=overwrite
            )
            record |= {"rewrites": rewriter.signature, "missing": problems.messages[before:]}
    _write(segments, output, seed, rewrites, record)
    click.echo(f"{len(segments)} scenes in {output}")
    exit_if(problems.messages)


def _check_folder(output: Path, texts: Mapping[str, object], again: bool) -> None:
    """Refuse a folder that holds data, except this set if it is to be continued or replaced."""
    existing = sorted((output / "comparison").glob("*.json"))
    if existing and not again:
        raise InputError(f"{output / 'comparison'}: it exists; choose another --output")
    foreign = next((path for path in existing if path.stem not in texts), None)
    if foreign:
        raise InputError(f"{foreign}: it is none of the descriptions; choose another --output")


def _write_author(
    texts: Mapping[str, str],
    source: Path,
    output: Path,
    number: int,
    rewrite: Callable[..., Mapping[str, Sequence[Rewrite]]],
    problems: Problems,
) -> None:
    """Write descriptions as author 1 and retellings as another author, for `authors` to read."""
    folder = output / "authors"
    first = folder / "author1.json"
    if is_there(first) and json.loads(first.read_text("utf-8")) != texts:
        raise InputError(
            f"{first}: its descriptions are not those of {source}; choose another --output"
        )
    folder.mkdir(parents=True, exist_ok=True)
    found = rewrite(texts, source, output, problems, file=f"rewrites-author{number}.jsonl")
    told = {scene: rewrites[0].text for scene, rewrites in found.items() if rewrites}
    for who, by_scene in ((1, texts), (number, told)):
        write_whole(
            folder / f"author{who}.json", json.dumps(by_scene, indent=1, ensure_ascii=False) + "\n"
        )
    click.echo(f"{len(told)} scenes by author {number} in {folder}")


def _write(
    segments: Mapping[str, Segments],
    output: Path,
    seed: int,
    rewrites: Mapping[str, list[Rewrite]],
    record: Mapping[str, Any],
) -> None:
    with progress_bar(len(segments), "corrupting", "texts") as advance:
        corruptions.write(segments, output, seed=seed, rewrites=rewrites, advance=advance)
    write_whole(output / _RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
