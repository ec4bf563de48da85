"""`vcs-runtime experiment make-corruptions`: data for `corruption` from your own descriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from vcs_experiments.cli.results import exit_if
from vcs_experiments.cli.shared import references_option
from vcs_experiments.datasets import corruptions
from vcs_experiments.datasets.corruptions import Rewrite
from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.results import Output
from vcs_experiments.rewriting.writing import AUTHOR, FILE, TRIES, Rewriter
from vcs_runtime._version import __version__
from vcs_runtime.cli.compare import seed_option
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    SectionedCommand,
    bundle,
    check_resume,
    combined,
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
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.segmentation.segmenter import Segmenter
from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.presence import is_there
from vcs_runtime.util.progress import progress_bar
from vcs_visil.cli.model import ModelOptions, writer_options

_RECORD = "corruptions.json"


@dataclass(frozen=True)
class _Splitting:
    """The segmenter that splits descriptions."""

    bundle: str
    segmenter: str
    device: str

    def open(self) -> Segmenter:
        """Open the segmenter; raise UsageError for options that cannot be used."""
        with usage_errors():
            config = ScorerConfig(self.bundle, segmenter=self.segmenter)
            return Segmenter.open(config.bundle, self.device, use=str(config.segmenter))


def _output(output: Path, resume: bool, overwrite: bool) -> Output:
    check_resume(resume, overwrite)
    return Output(output, resume, overwrite)


@click.command("make-corruptions", cls=SectionedCommand)
@references_option
@seed_option
@output_folder(help="Folder to create for the data.")
@together(max_read_mb, advanced=True)
@resume
@overwrite
@together(bundle, segmenter, device, section="Models")
@writer_options
@together(
    click.option(
        "--tries",
        type=click.IntRange(min=1),
        default=TRIES,
        metavar="N",
        help="Number of attempts at a rewrite if the model's answers cannot be used.",
    ),
    click.option(
        "--author",
        type=click.IntRange(min=2),
        metavar="N",
        help="Only retell each scene as author N with --model, as data for `authors`.",
    ),
    section="Language model",
)
@combined("out", _output)
@combined("splitting", _Splitting)
def make_corruptions(
    source: Path,
    seed: int,
    out: Output,
    splitting: _Splitting,
    tries: int,
    author: int | None,
    asked: ModelOptions,
) -> None:
    """Corrupt your descriptions, as data for `corruption`.

    The command leaves out, adds, repeats and reorders sentences. A language model (--model) also
    writes valid rewrites, distortions and summaries. The model always answers with the likeliest
    token, and runs on the device that its configuration names.

    \b
    Examples:
      vcs-runtime experiment make-corruptions --references refs.json -o corrupted
      vcs-runtime experiment make-corruptions --references refs.json -o set \\
        --model vllm:http://localhost:8000
      vcs-runtime experiment make-corruptions --references refs.json -o set \\
        --model genai:DIR --author 2
    """
    problems = Problems(warn)
    descriptions = _single_texts(source, problems)
    if author:
        if not asked.model:
            raise click.UsageError("--author needs --model")
        rewriter = Rewriter(asked.open(), lambda text: None, tries)
        _write_author(descriptions, source, out, author, rewriter, problems)
        exit_if(problems.messages)
        return
    _check_folder(out.folder, descriptions, out.resume or out.overwrite)
    writer = asked.open() if asked.model else None
    with splitting.open() as opened:
        segments = corruptions.split(descriptions, opened, problems)
        record: dict[str, Any] = {
            "made by": f"vcs-runtime {__version__}",
            "seed": seed,
            "segmenter": "|".join(opened.signature_fields),
            "scenes": len(segments),
        }
        out.folder.mkdir(parents=True, exist_ok=True)
        rewrites: dict[str, list[Rewrite]] = {}
        if writer:
            rewriter = Rewriter(writer, partial(_sentence_count, opened), tries)
            before = len(problems.messages)
            joined = {name: " ".join(pieces) for name, pieces in segments.items()}
            files = _job_files(out, out.folder / FILE, source)
            rewrites = rewriter.run(joined, files, problems)
            record["rewrites"] = rewriter.signature
            record["missing"] = problems.messages[before:]
    with progress_bar(len(segments), "corrupting", "texts") as advance:
        corruptions.write(segments, out.folder, seed=seed, rewrites=rewrites, advance=advance)
    _write_json(out.folder / _RECORD, record)
    click.echo(f"scenes in {out.folder}: {len(segments)}")
    exit_if(problems.messages)


def _single_texts(source: Path, problems: Problems) -> dict[str, str]:
    """Read descriptions by id; raise InputError if one has several references."""
    descriptions: dict[str, str] = {}
    for name, text in read_descriptions(source, problems).items():
        if not isinstance(text, str):
            raise InputError(
                f"{source}: {name}: several references, but only a single text can be corrupted"
            )
        descriptions[name] = text
    return descriptions


def _sentence_count(segmenter: Segmenter, text: str) -> int | None:
    sentences = segmenter.sentences(text, "text")
    return None if sentences is None else len(sentences)


def _job_files(out: Output, path: Path, source: Path) -> JobFiles:
    return JobFiles(path, out.resume, out.overwrite, inputs=[source])


def _check_folder(output: Path, texts: Mapping[str, object], again: bool) -> None:
    """Refuse a folder that holds data, except this set if it is to be continued or replaced."""
    existing = sorted((output / "comparison").glob("*.json"))
    if existing and not again:
        raise InputError(f"{output / 'comparison'} exists already: choose another --output")
    foreign = next((path for path in existing if path.stem not in texts), None)
    if foreign:
        raise InputError(f"{foreign} is not one of the descriptions: choose another --output")


def _write_author(
    descriptions: Mapping[str, str],
    source: Path,
    out: Output,
    number: int,
    rewriter: Rewriter,
    problems: Problems,
) -> None:
    """Write descriptions as author 1 and retellings as another author, for `authors` to read."""
    folder = out.folder / "authors"
    first = folder / "author1.json"
    if is_there(first) and json.loads(first.read_text("utf-8")) != descriptions:
        raise InputError(f"{first} has other descriptions than {source}: choose another --output")
    folder.mkdir(parents=True, exist_ok=True)
    files = _job_files(out, out.folder / f"rewrites-author{number}.jsonl", source)
    retold: dict[str, str] = {}
    for scene, rewrites in rewriter.run(descriptions, files, problems, [AUTHOR]).items():
        if rewrites:
            retold[scene] = rewrites[0].text
    _write_json(first, descriptions)
    _write_json(folder / f"author{number}.json", retold)
    click.echo(f"scenes written as author {number} in {folder}: {len(retold)}")


def _write_json(path: Path, value: object) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
