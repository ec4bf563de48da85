"""`vcs-runtime score`: a file of pairs, or one pair from text files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vcs_runtime.cli.inputs import check_source, one_pair, open_scorer
from vcs_runtime.cli.options import (
    PATH,
    SectionedCommand,
    check_resume,
    overwrite,
    pair_options,
    resume,
    scorer_options,
    scoring_options,
    together,
    usage_errors,
)
from vcs_runtime.cli.tables import print_result, print_summary, warn
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.jobs.run import score_file
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.options import Options, ScorerConfig


@click.command(cls=SectionedCommand)
@click.argument("pairs", type=PATH, required=False)
@click.option("-o", "--output", type=PATH, metavar="FILE",
              help="JSONL file for the scores, one line per pair in the order of PAIRS.")  # fmt: skip
@pair_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print the summary, or the scores of one pair, as JSON."
)
@resume
@overwrite
@together(
    click.option("--runner", type=click.Choice(["process", "ray"]), default="process", show_default=True,
                 help="What scores PAIRS: this process, or Ray actors (docs/scale.md)."),
    click.option("--actors", type=click.IntRange(min=1), metavar="N",
                 help="Number of Ray actors. [default: as many as fit the cluster]"),
    click.option("--address", metavar="ADDRESS",
                 help="Ray cluster: auto or HOST:PORT. [default: a new cluster on this machine]"),
    section="Many machines",
)  # fmt: skip
@scoring_options
@scorer_options
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
    config: ScorerConfig,
    options: Options,
) -> None:
    """Score a file of pairs, or one pair of text files.

    PAIRS is a JSONL, CSV or Parquet file. Each pair has a `reference` (a text; in JSONL and Parquet also a
    list of texts), a `generated` text, and optionally an `id`.

    A summary is printed; the scores of every pair are written to --output. Pairs that cannot be scored are
    named on standard error and have an `error` in the output. The exit code is then 1.

    \b
    Examples:
      vcs-runtime score pairs.jsonl -o scores.jsonl
      vcs-runtime score pairs.jsonl -o scores.jsonl --resume
      vcs-runtime score --reference ref.txt --generated gen.txt
    """
    check_source(pairs, references, generated)
    if output is None and (resume or overwrite):
        raise click.UsageError("--resume and --overwrite need --output")
    check_resume(resume, overwrite)
    if runner != "ray" and (actors or address):
        raise click.UsageError("--actors and --address belong to --runner ray")
    if pairs is None and output is not None:
        raise click.UsageError("--output belongs to PAIRS; use --json for one pair")
    if pairs is None and runner == "ray":
        raise click.UsageError("--runner ray scores a file of PAIRS")
    if pairs is None:
        context.exit(_score_pair(one_pair(references, generated), config, options, as_json))
    if runner == "ray":
        summary = _score_on_ray(address, actors, pairs, output, config, options, resume, overwrite)
    else:
        with open_scorer(config) as scorer:
            summary = score_file(
                scorer, pairs, output, options, resume=resume, overwrite=overwrite, report_failure=warn
            )
    if as_json:
        click.echo(json.dumps(summary.to_dict()))
    else:
        print_summary(summary)
    context.exit(1 if summary.failed else 0)


def _score_pair(pair: InputPair, config: ScorerConfig, options: Options, as_json: bool) -> int:
    with open_scorer(config) as scorer:
        [result] = scorer.iter_scores([pair.texts], options)
    if result.error:
        warn(result.error)
        return 1
    if as_json:
        click.echo(json.dumps(result.to_dict()))
    else:
        print_result(result)
    return 0


def _score_on_ray(
    address: str | None, actors: int | None, pairs: Path, output: Path | None, config: ScorerConfig,
    options: Options, resume: bool, overwrite: bool,
) -> Summary:  # fmt: skip
    from vcs_runtime.ray import connected, score_file

    report_device = warn if config.device == "auto" else lambda message: None
    with usage_errors(), connected(address):
        return score_file(
            pairs, output, config, options, actors=actors, resume=resume, overwrite=overwrite,
            report_failure=warn, report_device=report_device,
        )  # fmt: skip
