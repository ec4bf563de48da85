"""`vcs-runtime score`: a file of pairs, or one pair from text files."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from vcs_runtime.bundle.paths import vector_store
from vcs_runtime.cli.inputs import (
    InputCommand,
    InputOptions,
    by_side,
    input_options,
    is_text_pair,
    keep_column,
    one_pair,
    systems_of,
    unmatched,
)
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.notices import open_scorer, report_device
from vcs_runtime.cli.options import (
    PATH,
    NamedPath,
    as_json,
    check_resume,
    combined,
    csv_safe,
    overwrite,
    resume,
    scorer_options,
    served_embedder,
    together,
    usage_errors,
)
from vcs_runtime.cli.scoring import MetricOptions, scoring_options
from vcs_runtime.cli.tables import (
    Seen,
    print_end,
    print_result,
    print_summary,
    print_systems,
    worst_first,
)
from vcs_runtime.jobs import run
from vcs_runtime.jobs.output import ON_ERROR, SKIP, JobFiles
from vcs_runtime.jobs.pairs import InputPair, PairSource, count_pairs
from vcs_runtime.jobs.score_files import SCORES
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.atomic import file_errors
from vcs_runtime.util.printable import printable
from vcs_runtime.util.progress import name_step, progress_bar

ScoreFile = Callable[[PairSource, JobFiles, Options], Summary]


@dataclass(frozen=True)
class JobOptions:
    """What is written and printed: the values of the command's options."""

    output: str | None
    as_json: bool
    on_error: str
    every: bool
    worst: int | None
    resume: bool
    overwrite: bool


@dataclass(frozen=True)
class ClusterOptions:
    """Which machines score: the values of the command's options."""

    runner: str
    actors: int | None
    address: str | None

    @property
    def is_ray(self) -> bool:
        """Whether Ray scores, and not this process."""
        return self.runner == "ray"


_job = combined(
    "job",
    JobOptions,
    click.option(
        "-o",
        "--output",
        type=NamedPath(path_type=str),
        metavar="FILE",
        help=(
            "File for the scores, one line per pair: .jsonl, .csv, .tsv or .parquet; for "
            "several systems a folder (DIR/)."
        ),
    ),
    as_json,
    click.option(
        "--on-error",
        type=click.Choice(ON_ERROR),
        default=SKIP,
        help=(
            "What to do with pairs that cannot be scored: leave them out of the means, "
            "count them as 0 (margin -1), or end the job at the first one."
        ),
    ),
    click.option(
        "--all", "every", is_flag=True, help="Print all scores, with their standard deviations."
    ),
    click.option(
        "--worst",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of worst pairs to list for each system, with the reasons.",
    ),
    resume,
    overwrite,
    together(csv_safe, advanced=True),
)
_cluster = combined(
    "cluster",
    ClusterOptions,
    together(
        click.option(
            "--runner",
            type=click.Choice(["process", "ray"]),
            default="process",
            help="Where to score PAIRS: in this process or on Ray (docs/guide/clusters.md).",
        ),
        click.option(
            "--actors",
            type=click.IntRange(min=1),
            metavar="N",
            help="Number of Ray actors. [default: as many as fit the cluster]",
        ),
        click.option(
            "--address",
            metavar="ADDRESS",
            help="Address of the Ray cluster: auto or HOST:PORT. [default: a new local cluster]",
        ),
        section="Many machines",
        advanced=True,
    ),
)


@click.command(cls=InputCommand)
@click.argument("files", type=PATH, nargs=-1, metavar="[PAIRS | REFERENCE... GENERATED]")
@_job
@input_options
@keep_column
@_cluster
@scoring_options
@scorer_options
@served_embedder
@click.pass_context
def score(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    job: JobOptions,
    source: InputOptions,
    cluster: ClusterOptions,
    metric: MetricOptions,
    config: ScorerConfig,
) -> None:
    """Score generated texts against their references.

    PAIRS is a JSONL, JSON, CSV, TSV, Parquet or Excel file, or - for standard input. Its columns
    are `reference`, `generated` and optionally `id`. Several files, or a folder, are several
    systems. Several plain texts are one pair, with the generated text last. docs/guide/input.md has
    a command for every kind of input.

    The command prints a summary, and writes the scores of every pair to --output. If a pair cannot
    be scored, standard error names the pair, the output has an `error`, and the exit code is 1.

    \b
    Examples:
      vcs-runtime score pairs.jsonl -o scores.jsonl
      vcs-runtime score pairs.jsonl -o scores.jsonl --resume
      vcs-runtime score run.csv --reference-key gt --generated-key pred \\
        --id-key video_id
      vcs-runtime score --references refs.json --predictions systems/*.json \\
        -o scores/
      vcs-runtime score reference.txt generated.txt
    """
    files, source = by_side(files, source)
    of_texts = is_text_pair(files, source)
    _check_usage(job, cluster, of_texts)
    options = metric.options
    if of_texts:
        context.exit(_score_pair(one_pair(files, options.clean), job, config, options))
    systems = systems_of(files, source)
    targets = _targets(systems, job.output)
    problems = unmatched([*systems.values()], options.clean)
    summaries: dict[str, Summary] = {}
    seen: Seen = {}
    with ExitStack() as stack:
        scorer = None
        if cluster.is_ray:  # whose machines open the bundle by its name
            score_file: ScoreFile = partial(_score_on_ray, cluster, config)
        else:
            scorer = stack.enter_context(open_scorer(config))
            score_file = partial(run.score_file, scorer)
        if len(systems) > 1:
            stack.enter_context(progress_bar(sum(map(count_pairs, systems.values()))))
        for number, (name, pairs) in enumerate(systems.items(), 1):
            name_step(f"{number} of {len(systems)}: {name}")
            summaries[name] = score_file(pairs, _job_files(targets[name], job), options)
        if scorer and job.worst:
            seen = _look_at_worst(scorer, systems, summaries, options)
    if job.as_json:
        _print_json(summaries)
    else:
        outputs = [str(path) for path in targets.values() if path]
        part = "column" if source.has_several_systems else "file"
        _print(summaries, seen, job.every, outputs, part)
    failed = any(summary.failed for summary in summaries.values())
    context.exit(1 if problems or failed else 0)


def _check_usage(job: JobOptions, cluster: ClusterOptions, of_texts: bool) -> None:
    """Raise UsageError unless the options fit together, and fit the text files of one pair."""
    check_resume(job.resume, job.overwrite)
    if not cluster.is_ray and (cluster.actors or cluster.address):
        raise click.UsageError("--actors and --address need --runner ray")
    if job.output is None and (job.resume or job.overwrite):
        raise click.UsageError("--resume and --overwrite need --output")
    if not of_texts:
        return
    if cluster.is_ray:
        raise click.UsageError("--runner ray needs PAIRS, a file of pairs")
    if job.output is not None or job.on_error != SKIP:
        raise click.UsageError("--output and --on-error need PAIRS; for one pair, use --json")


def _job_files(output: Path | None, job: JobOptions) -> JobFiles:
    return JobFiles(
        output,
        resume=job.resume,
        overwrite=job.overwrite,
        on_error=job.on_error,
        report=warn,
        worst=job.worst or 0,
    )


def _look_at_worst(
    scorer: Scorer,
    systems: Mapping[str, PairSource],
    summaries: Mapping[str, Summary],
    options: Options,
) -> Seen:
    """Return what one can see in the worst pairs, by system and id."""
    ranking = worst_first(summaries)
    seen = {}
    for name, pairs in systems.items():
        worst = {line["id"] for line in summaries[name].worst(ranking)}
        seen[name] = run.conclusions(scorer, pairs, options, worst)
    return seen


def _print_json(summaries: Mapping[str, Summary]) -> None:
    """Print the summary of one system, or the summaries of several by their names."""
    values = {name: summary.to_dict() for name, summary in summaries.items()}
    click.echo(json.dumps(values if len(values) > 1 else next(iter(values.values()))))


def _print(
    summaries: Mapping[str, Summary], seen: Seen, every: bool, outputs: Sequence[str], part: str
) -> None:
    """Print one table of several systems, each a `part` of the input, or the scores of one system.

    The last lines show what to report and which command to type next.
    """
    if len(summaries) > 1:
        print_systems(summaries)
        click.echo(f"\n{len(summaries)} systems: each {part} is one system")
    for name, summary in summaries.items():
        if every and len(summaries) > 1:
            click.echo(f"\n{printable(name)}\n")
        if every or len(summaries) == 1:
            print_summary(summary, every)
    if len(outputs) > 1:
        files = f"{shlex.quote(str(Path(outputs[0]).parent))}/*.jsonl"
    else:
        files = "".join(outputs)
    following = f"compare {files}" if len(summaries) > 1 else f"report {files} -o report.html"
    print_end(summaries, seen, files and f"vcs-runtime {following}")


def _targets(systems: Mapping[str, object], argument: str | None) -> dict[str, Path | None]:
    """Return the output file of each system; None without an output.

    Several systems, or an output such as "DIR/", get one file per system in a folder.
    """
    if argument is None:
        return dict.fromkeys(systems)
    output = Path(argument)
    if not (len(systems) > 1 or argument.endswith(("/", os.sep)) or output.is_dir()):
        if output.suffix.lower() not in ("", *SCORES):
            raise click.UsageError(
                f"--output: {output.name!r} must end in {', '.join(SCORES)}, or be a folder"
            )
        return dict.fromkeys(systems, output)
    for name in systems:
        if Path(name).name != name:
            raise click.UsageError(f"--output: the system {name!r} cannot name a file: rename it")
    if not output.is_dir() and (output.exists() or output.suffix.lower() in SCORES):
        raise click.UsageError(
            f"--output: {output} is the name of a file; for several systems, give a folder (DIR/)"
        )
    with file_errors(output):
        output.mkdir(exist_ok=True)
    return {name: output / f"{name}.jsonl" for name in systems}


def _score_pair(pair: InputPair, job: JobOptions, config: ScorerConfig, options: Options) -> int:
    """Score and print one pair; return the exit code."""
    with open_scorer(config) as scorer:
        [result] = scorer.iter_scores([pair.texts], options)
    if result.error:
        warn(result.error)
        return 1
    if job.as_json:
        click.echo(json.dumps(result.to_dict()))
    else:
        print_result(result, job.every)
    return 0


def _score_on_ray(
    cluster: ClusterOptions,
    config: ScorerConfig,
    pairs: PairSource,
    files: JobFiles,
    options: Options,
) -> Summary:
    from vcs_runtime.ray import connected, score_file

    if config.cache == vector_store():  # a folder of this machine
        config = replace(config, cache=None)
    with usage_errors(), connected(cluster.address):
        return score_file(
            pairs, files, config, options, actors=cluster.actors, report_device=report_device
        )
