"""`vcs-runtime compare`: two score files over the same pairs."""

from __future__ import annotations

import json
from pathlib import Path

import click
import rich.table

from vcs_runtime.cli.options import PATH, SectionedCommand, as_json, usage_errors
from vcs_runtime.cli.tables import console, warn
from vcs_runtime.experiments.compare import Comparison
from vcs_runtime.experiments.compare import compare as compare_files
from vcs_runtime.experiments.statistics import RESAMPLES
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.scoring.score_table import SCORES


@click.command(cls=SectionedCommand)
@click.argument("a", type=PATH, metavar="A.jsonl")
@click.argument("b", type=PATH, metavar="B.jsonl")
@click.option("--score", type=click.Choice(tuple(SCORES)), metavar="NAME",
              help="Score to compare: vcs, margin, gas, las, nas, or another column of the files. "
              "[default: vcs; margin if VCS is 0 for most pairs]")  # fmt: skip
@click.option("--moved", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="Number of pairs to list, those that changed most first.")  # fmt: skip
@click.option("--ignore-signatures", is_flag=True, help="Compare files whose signatures differ.")
@click.option("--resamples", type=click.IntRange(min=100), default=RESAMPLES, show_default=True, metavar="N",
              help="Number of resamples of the bootstrap and the permutation test.")  # fmt: skip
@click.option("--seed", type=int, default=SEED, show_default=True, metavar="N", help="Random seed.")
@as_json
def compare(
    a: Path, b: Path, score: str | None, moved: int, ignore_signatures: bool, resamples: int, seed: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Compare two score files over the same pairs.

    Pairs are matched by id. The result is the mean difference (B minus A) with a 95 % interval, the p-values
    of two paired tests, and the pairs that changed most.

    \b
    Example:
      vcs-runtime compare baseline.jsonl new-model.jsonl
    """
    with usage_errors():
        comparison = compare_files(
            a, b, score=score, moved=moved, force=ignore_signatures, resamples=resamples, seed=seed
        )
    if as_json:
        click.echo(json.dumps(comparison.to_dict()))
    else:
        _print(comparison)
    for name in comparison.left_out:
        warn(f"{name}: not scored in both files, left out")
    if comparison.left_out:
        raise click.exceptions.Exit(1)


def _print(comparison: Comparison) -> None:
    difference = comparison.difference
    mean_a, mean_b = comparison.mean_a, comparison.mean_b
    out = console()
    if comparison.reason:
        out.print(f"{comparison.reason}, so the margin is compared; --score vcs compares VCS.\n")
    out.print(f"{comparison.score}, {comparison.pairs} pairs: {mean_a:.4f} in A, {mean_b:.4f} in B")
    out.print(
        f"difference {difference.mean:+.4f}, 95 % interval {difference.low:+.4f} .. {difference.high:+.4f}"
    )
    out.print(
        f"p {difference.p_bootstrap:.4f} (paired bootstrap), {difference.p_permutation:.4f} (permutation)\n"
    )
    table = rich.table.Table("moved most", "A", "B", "B - A", box=None, pad_edge=False)
    for name, a, b in comparison.moved:
        table.add_row(name, f"{a:.4f}", f"{b:.4f}", f"{b - a:+.4f}")
    out.print(table)
    for name, signature in zip("AB", comparison.signatures, strict=True):
        out.print(f"{name} {signature}", soft_wrap=True)
