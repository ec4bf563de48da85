"""`vcs-runtime score`: a file of pairs, or one pair from two text files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from vcs_numba import Params
from vcs_runtime.cli.tables import print_result, print_summary
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.run import score_file as score_here
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.scorer import Scorer

# docs/vcs.md, section 11; the result tables use chunk size 1 with LCT 0 and 1.
PRESETS = {"default": (1, 0.0), "paper": (3, 0.1), "table-lct0": (1, 0.0), "table-lct1": (1, 1.0)}

_FILE = click.Path(path_type=Path)


def scoring_options(function: Callable[..., Any]) -> Callable[..., Any]:
    defaults = Params()
    options = [
        click.option("--preset", type=click.Choice(list(PRESETS)), default="default", show_default=True,
                     help="Chunk size and LCT of: the reference package; the papers; the result tables."),
        click.option("--chunk-size", type=int, default=1, metavar="K", help="Segments joined to one chunk."),
        click.option("--lct", type=float, default=0.0, metavar="X", help="Local Chronology Tolerance."),
        click.option("--context-cutoff", type=float, default=defaults.context_cutoff, metavar="X"),
        click.option("--context-window", type=float, default=defaults.context_window, metavar="X"),
        click.option("--lct-penalty", default=defaults.lct_penalty, metavar="full|excess"),
        click.option("--regularizer", default=defaults.regularizer, metavar="window|length"),
        click.option("--nas-blend-factor", type=float, default=defaults.nas_blend_factor, metavar="X"),
        click.option("--nas-coverage-cutoff", type=float, default=defaults.nas_coverage_cutoff, metavar="X"),
        click.option("--small-text", default=defaults.small_text, metavar="paper|reference"),
        click.option("--aggregate", default="max", metavar="max|mean", help="Over several references."),
        click.option("--short", is_flag=True, help="Short captions: words take the place of sentences."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option(
            "--bundle", default="default", metavar="B", show_default=True, help="A bundle's folder."
        ),
        click.option(
            "--segmenter", default="auto", metavar="auto|rules|learned|B", show_default=True,
            help="What cuts texts: as their punctuation decides, rules, the model; or another bundle's.",
        ),
        click.option(
            "--device", default="auto", metavar="D", show_default=True,
            help="auto, cpu, cuda:N or tensorrt:N.",
        ),
        click.option("--gpu-mem-gb", type=float, metavar="GB", help="Of a GPU's memory no more than this."),
        click.option(
            "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads [default: all cores]."
        ),
        click.option("--cache", type=_FILE, metavar="DIR", help="Keep vectors in DIR for later runs."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def pair_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """One pair from text files, in place of a file of pairs."""
    function = click.option(
        "--generated", type=_FILE, metavar="FILE", help="One pair: a text file of the generated text."
    )(function)
    return click.option(
        "--reference", "references", type=_FILE, multiple=True, metavar="FILE",
        help="One pair: a text file of the reference; several may be given.",
    )(function)  # fmt: skip


@click.command()
@click.argument("pairs", type=_FILE, required=False)
@click.option(
    "-o", "--output", type=_FILE, metavar="FILE", help="JSONL: one line a pair, in the pairs' order."
)
@pair_options
@click.option("--resume", is_flag=True, help="Go on behind the last whole line of the output.")
@click.option("--overwrite", is_flag=True, help="Replace an output that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary (or the pair's scores) as JSON.")
@click.option(
    "--engine",
    "runner",
    type=click.Choice(["process", "ray"]),
    default="process",
    show_default=True,
    help="What scores PAIRS: this process, or actors on a Ray cluster (docs/scale.md).",
)
@click.option(
    "--actors", type=click.IntRange(min=1), metavar="N", help="Of Ray, how many [default: what fits]."
)
@click.option("--address", metavar="A", help="Ray's: auto or HOST:PORT [default: one of this machine alone].")
@scoring_options
@engine_options
@click.pass_context
def score(
    context: click.Context,
    /,
    pairs: Path | None,
    output: Path | None,
    references: tuple[Path, ...],
    generated: Path | None,
    resume: bool,
    overwrite: bool,
    as_json: bool,
    runner: str,
    actors: int | None,
    address: str | None,
    **options_given: Any,
) -> None:
    """Score the pairs of PAIRS, a JSONL, CSV or Parquet file with `reference` (a text; in JSONL and Parquet
    also a list of texts), `generated` and optionally `id`; or one pair, by --reference and --generated.

    A summary goes to standard output, the scores of every pair to --output. Pairs that cannot be scored are
    named on standard error and have an `error` in the output; the exit code is then 1.
    """
    check_source(pairs, references, generated)
    if output is None and (resume or overwrite):
        raise click.UsageError("--resume and --overwrite need --output")
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other")
    if pairs is None and output is not None:
        raise click.UsageError("--output belongs to PAIRS; use --json for one pair")
    if runner == "ray" and pairs is None:
        raise click.UsageError("--engine ray scores a file of PAIRS")
    if runner != "ray" and (actors or address):
        raise click.UsageError("--actors and --address belong to --engine ray")
    engine = engine_of(options_given)
    options = chosen_options(context, **options_given)
    if pairs is None:
        assert generated is not None
        with open_scorer(engine) as scorer:
            [result] = scorer.iter_scores([one_pair(references, generated)], options)
        if as_json and not result.error:
            click.echo(json.dumps(result.to_dict()))
        elif not result.error:
            print_result(result)
        else:
            _say(result.error)
        failed = result.error is not None
    else:
        job: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "report_failure": _say}
        if runner == "ray":
            config = ScorerConfig(**engine)
            summary = _score_on_ray(address, pairs, output, config, options, actors=actors, **job)
        else:
            with open_scorer(engine) as scorer:
                summary = score_here(scorer, pairs, output, options, **job)
        if as_json:
            click.echo(json.dumps(summary.to_dict()))
        else:
            print_summary(summary)
        failed = summary.failed > 0
    context.exit(1 if failed else 0)


def _score_on_ray(
    address: str | None, pairs: Path, output: Path | None, config: ScorerConfig, options: Options, **job: Any
) -> Summary:
    from vcs_runtime.ray import connected, score_file

    if config.device == "auto":
        job["report_device"] = _say
    try:
        with connected(address):
            return score_file(pairs, output, config, options, **job)
    except InputError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _say(message: str) -> None:
    click.echo(f"vcs-runtime: {message}", err=True)


def engine_of(options: dict[str, Any]) -> dict[str, Any]:
    """Take what `engine_options` gave out of a command's options."""
    names = ("bundle", "segmenter", "device", "gpu_mem_gb", "threads", "cache")
    return {name: options.pop(name) for name in names}


def open_scorer(engine: dict[str, Any]) -> Scorer:
    """A scorer as `engine_options` ask for it; what `auto` chose is said on standard error."""
    try:
        scorer = Scorer.open(**engine)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if engine["device"] == "auto":
        _say(f"{scorer.embedder.device.provider_name} ({scorer.embedder.device.reason})")
    return scorer


def one_pair(references: Sequence[Path], generated: Path) -> tuple[str | list[str], str]:
    """The pair in text files, as the scorer takes it."""
    texts = [read_text(path) for path in references]
    return (texts[0] if len(texts) == 1 else texts), read_text(generated)


def check_source(pairs: Path | None, references: Sequence[Path], generated: Path | None) -> None:
    """Raise UsageError unless there is either a file of pairs or both texts of one."""
    if (pairs is None) == (not references and generated is None):
        raise click.UsageError("give either PAIRS, or --reference and --generated")
    if pairs is None and (not references or generated is None):
        raise click.UsageError("--reference and --generated belong together")


def chosen_options(
    context: click.Context, *, preset: str, aggregate: str, short: bool, **numbers: Any
) -> Options:
    """The preset's values, overridden by what was given explicitly."""
    for name, value in zip(("chunk_size", "lct"), PRESETS[preset], strict=True):
        if context.get_parameter_source(name) is ParameterSource.DEFAULT:
            numbers[name] = value
    if short and context.get_parameter_source("chunk_size") is not ParameterSource.DEFAULT:
        raise click.UsageError("--chunk-size: words are the chunks of --short")
    chunk_size = 1 if short else numbers["chunk_size"]
    del numbers["chunk_size"]
    try:
        return Options(chunk_size, Params(**numbers), aggregate, short)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
