"""`vcs-runtime compare`: the score files of several systems over the same pairs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, SectionedCommand, csv_safe, max_read_mb, usage_errors
from vcs_runtime.cli.tables import console, print_table, prose
from vcs_runtime.comparing import tables
from vcs_runtime.comparing.compare import compare as compare_files
from vcs_runtime.comparing.systems import CORRECTIONS, FAMILIES, Comparison
from vcs_runtime.comparing.tables import csv_text, grids, latex, notes
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.scoring.score_table import ALL

_FORMATS = ("text", "markdown", "latex", "csv", "json")
_MORE = "with --format json"
#: Options of paired tests, also of `experiment rank`.
correction = click.option(
    "--correction",
    type=click.Choice(CORRECTIONS),
    default="holm",
    show_default=True,
    help="How p-values are corrected for the number of tests.",
)
family = click.option(
    "--family",
    type=click.Choice(FAMILIES),
    default="score",
    show_default=True,
    help="Tests that are corrected together: those of one score, or of all.",
)
enough_resamples = click.option(
    "--resamples",
    type=click.IntRange(min=100),
    metavar="N",
    help=(
        "Number of resamples of the bootstrap and "
        "the permutation test. [default: 2000; more if many tests are corrected]"
    ),
)


@click.command(cls=SectionedCommand)
@click.argument("files", type=PATH, nargs=-1, metavar="A.jsonl B.jsonl...")
@click.option(
    "--baseline",
    metavar="NAME",
    help="System that the others are compared with, by its name or file. [default: the first file]",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name of a system, once for each file, in order. [default: the files' names]",
)
@click.option(
    "--score",
    "scores",
    type=click.Choice(tuple(ALL), case_sensitive=False),
    multiple=True,
    metavar="NAME",
    help=(
        "Score to compare: vcs, margin, gas, las, nas, vcs_strict, or another "
        "column; may be repeated. [default: vcs; margin if VCS is 0 for most pairs]"
    ),
)
@click.option(
    "--all-pairs", is_flag=True, help="Test all pairs of systems; CSV holds the tests alone."
)
@correction
@family
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="Format of the table.",
)
@csv_safe
@max_read_mb
@click.option(
    "--moved",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of pairs of two systems to list, those that changed most first. [default: 10]",
)
@click.option("--ignore-signatures", is_flag=True, help="Compare files whose signatures differ.")
@enough_resamples
@click.option("--seed", type=int, default=SEED, show_default=True, metavar="N", help="Random seed.")
def compare(
    files: tuple[Path, ...],
    baseline: str | None,
    names: tuple[str, ...],
    scores: tuple[str, ...],
    all_pairs: bool,
    correction: str,
    family: str,
    format_: str,
    moved: int | None,
    ignore_signatures: bool,
    resamples: int | None,
    seed: int,
) -> None:
    """Compare the score files of several systems.

    A folder stands for the files in it. Pairs are matched by id; only those that all systems have
    scored are compared. The table has the mean of each system, and its difference to the baseline
    with two paired tests.

    \b
    Examples:
      vcs-runtime compare baseline.jsonl new-model.jsonl
      vcs-runtime compare a.jsonl b.jsonl c.jsonl --score vcs --score las --format latex
    """
    if moved is not None and len(files) > 2:
        raise click.UsageError("--moved lists the pairs of two systems; there are more")
    with usage_errors():
        comparison = compare_files(
            files,
            names=names,
            baseline=baseline,
            scores=scores,
            correction=correction,
            family=family,
            all_pairs=all_pairs,
            moved=10 if moved is None else moved,
            force=ignore_signatures,
            resamples=resamples,
            seed=seed,
        )
    if format_ == "json":
        click.echo(json.dumps(comparison.to_dict()))
    elif format_ == "csv":
        table = tables.tables(comparison)[-1]
        click.echo(csv_text(table.columns, table.rows), nl=False)
        if comparison.reason:
            warn(notes(comparison)[0])
    elif format_ == "latex":
        click.echo(latex(comparison), nl=False)
    elif format_ == "markdown":
        click.echo(tables.markdown(comparison), nl=False)
    else:
        _print(comparison)
    if format_ in ("json", "csv"):  # the other formats say it among their notes
        for sentence in comparison.about_segmenters[1:]:
            warn(sentence)
    for id_, systems in comparison.left_out.items():
        warn(f"{id_}: not scored by {', '.join(systems)}, left out")
    if comparison.left_out:
        raise click.exceptions.Exit(1)


def _print(comparison: Comparison) -> None:
    out = console()
    for score in comparison.scores:  # one below the other: side by side they would be too wide
        for grid in grids(comparison, [score], digits=3):
            drop = [*range(len(grid.headings) - 1, 0, -1)]
            drop = [i for i in drop if grid.headings[i].text != "against"]
            drop.sort(key=[bool(own.group) for own in grid.headings].__getitem__)  # counts first
            print_table(grid.flat(), [[*map(str, row)] for row in grid.rows], drop=drop, more=_MORE)
            out.print()
    for sentence in notes(comparison):
        prose(out, sentence)
    if comparison.moved:
        out.print()
        a, b = sorted(
            (own.name for own in comparison.systems), key=lambda name: name != comparison.baseline
        )
        rows = [[id_, f"{x:.4f}", f"{y:.4f}", f"{y - x:+.4f}"] for id_, x, y in comparison.moved]
        print_table(("moved most", a, b, "difference"), rows, more=_MORE)
    for line in tables.signatures(comparison):
        out.print(line, soft_wrap=True)
