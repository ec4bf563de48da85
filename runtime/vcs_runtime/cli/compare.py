"""`vcs-runtime compare`: the score files of several systems over the same pairs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    PATH,
    SectionedCommand,
    combined,
    csv_safe,
    max_read_mb,
    together,
    usage_errors,
)
from vcs_runtime.cli.tables import console, print_table, prose
from vcs_runtime.comparing import tables
from vcs_runtime.comparing.compare import compare as compare_files
from vcs_runtime.comparing.systems import CORRECTIONS, FAMILIES, Comparison
from vcs_runtime.comparing.tables import Grid, csv_text, grids, latex, notes
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.scoring.score_table import ALL

_FORMATS = ("text", "markdown", "latex", "csv", "json")
_MORE = "with --format json"
_MOVED = 10  # pairs that are listed by default
#: Options of systems, also of `report`.
baseline_system = click.option(
    "--baseline",
    metavar="NAME",
    help="System to compare the others with: its name or file. [default: the first file]",
)
system_names = click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name of a system; repeat for each file, in order. [default: the names of the files]",
)
#: Options of paired tests, also of `experiment rank`.
correction = click.option(
    "--correction",
    type=click.Choice(CORRECTIONS),
    default="holm",
    help="Correction of p-values for the number of tests.",
)
family = click.option(
    "--family",
    type=click.Choice(FAMILIES),
    default="score",
    help="Tests that are corrected together: the tests of one score, or all tests.",
)
enough_resamples = click.option(
    "--resamples",
    type=click.IntRange(min=100),
    metavar="N",
    help=(
        "Number of resamples of the bootstrap and the permutation test. [default: 2000, "
        "or more if many tests are corrected]"
    ),
)
seed_option = click.option("--seed", type=int, default=SEED, metavar="N", help="Random seed.")


@dataclass(frozen=True)
class ComparisonOptions:
    """What is compared, tested and printed: the values of the command's options."""

    baseline: str | None
    names: tuple[str, ...]
    scores: tuple[str, ...]
    all_pairs: bool
    correction: str
    family: str
    format: str
    intervals: bool
    moved: int | None
    ignore_signatures: bool
    resamples: int | None
    seed: int


@click.command(cls=SectionedCommand)
@click.argument("files", type=PATH, nargs=-1, metavar="A.jsonl B.jsonl...")
@combined(
    "options",
    ComparisonOptions,
    baseline_system,
    system_names,
    click.option(
        "--score",
        "scores",
        type=click.Choice(tuple(ALL), case_sensitive=False),
        multiple=True,
        metavar="NAME",
        help=(
            "Score to compare: vcs, margin, gas, las, nas, vcs_strict, or another column; "
            "may be repeated. [default: vcs, or margin if VCS is 0 for most pairs]"
        ),
    ),
    click.option(
        "--all-pairs", is_flag=True, help="Test all pairs of systems; CSV then has only the tests."
    ),
    click.option(
        "--format", type=click.Choice(_FORMATS), default="text", help="Format of the table."
    ),
    click.option(
        "--intervals",
        is_flag=True,
        help="Print half of each 95 % bootstrap interval after its mean (with --format latex).",
    ),
    click.option(
        "--moved",
        type=click.IntRange(min=0),
        metavar="N",
        help="Number of most changed pairs to list when two systems are compared. [default: 10]",
    ),
    click.option(
        "--ignore-signatures", is_flag=True, help="Accept score files whose signatures differ."
    ),
    together(
        correction, family, enough_resamples, seed_option, csv_safe, max_read_mb, advanced=True
    ),
)
def compare(files: tuple[Path, ...], options: ComparisonOptions) -> None:
    """Compare systems by their score files.

    A folder stands for the files in it. Pairs are matched by id, and only pairs that all systems
    have scored are compared. The table shows the mean of each system, and its difference from the
    baseline with two paired tests.

    \b
    Examples:
      vcs-runtime compare baseline.jsonl new-model.jsonl
      vcs-runtime compare a.jsonl b.jsonl c.jsonl --score vcs --score las \\
        --format latex
    """
    if options.moved is not None and len(files) > 2:
        raise click.UsageError("--moved compares the pairs of two systems: give exactly two files")
    if options.intervals and options.format != "latex":
        raise click.UsageError("--intervals needs --format latex; other formats have intervals")
    with usage_errors():
        comparison = compare_files(
            files,
            names=options.names,
            baseline=options.baseline,
            scores=options.scores,
            correction=options.correction,
            family=options.family,
            all_pairs=options.all_pairs,
            moved=_MOVED if options.moved is None else options.moved,
            force=options.ignore_signatures,
            resamples=options.resamples,
            seed=options.seed,
        )
    if options.format == "json":
        click.echo(json.dumps(comparison.to_dict()))
    elif options.format == "csv":
        table = tables.tables(comparison)[-1]
        click.echo(csv_text(table.columns, table.rows), nl=False)
        if comparison.reason:
            warn(notes(comparison)[0])
    elif options.format == "latex":
        click.echo(latex(comparison, options.intervals), nl=False)
    elif options.format == "markdown":
        click.echo(tables.markdown(comparison), nl=False)
    else:
        _print(comparison)
    if options.format in ("json", "csv"):  # the other formats say it among their notes
        for sentence in comparison.about_segmenters[1:]:
            warn(sentence)
    for id_, systems in comparison.left_out.items():
        warn(f"{id_} is left out, because it has no score from {', '.join(systems)}")
    if comparison.left_out:
        raise click.exceptions.Exit(1)


def _print(comparison: Comparison) -> None:
    out = console()
    for score in comparison.scores:  # one below the other: side by side they would be too wide
        for grid in grids(comparison, [score], digits=3):
            rows = [[*map(str, row)] for row in grid.rows]
            print_table(grid.flat(), rows, drop=_least_important(grid), more=_MORE)
            out.print()
    for sentence in notes(comparison):
        prose(out, sentence)
    if comparison.moved:
        out.print()
        first, second = (system.name for system in comparison.systems)
        if second == comparison.baseline:
            first, second = second, first
        rows = [[id_, f"{x:.4f}", f"{y:.4f}", f"{y - x:+.4f}"] for id_, x, y in comparison.moved]
        print_table(("moved most", first, second, "difference"), rows, more=_MORE)
    for line in tables.signatures(comparison):
        out.print(line, soft_wrap=True)


def _least_important(grid: Grid) -> list[int]:
    """Return the columns that a narrow terminal leaves out, first the counts, from the right."""
    counts, scores = [], []
    for i in range(len(grid.headings) - 1, 0, -1):
        heading = grid.headings[i]
        if heading.text == "against":
            continue
        if heading.group:
            scores.append(i)
        else:
            counts.append(i)
    return counts + scores
