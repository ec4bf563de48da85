"""`vcs-runtime compare`: two score files over the same pairs."""

from __future__ import annotations

import json
from pathlib import Path

import click
import rich.table

from vcs_runtime.cli.tables import console
from vcs_runtime.experiments.compare import Comparison
from vcs_runtime.experiments.compare import compare as compare_files
from vcs_runtime.experiments.statistics import RESAMPLES
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.util.extras import require

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("a", type=_FILE, metavar="A.jsonl")
@click.argument("b", type=_FILE, metavar="B.jsonl")
@click.option(
    "--score", default="vcs", show_default=True, metavar="NAME", help="Which score: vcs, gas, las, nas, ..."
)
@click.option("--moved", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="How many of the pairs that moved most to list.")  # fmt: skip
@click.option("--force", is_flag=True, help="Compare files whose signatures differ.")
@click.option("--resamples", type=click.IntRange(min=100), default=RESAMPLES, show_default=True, metavar="N")
@click.option("--seed", type=int, default=SEED, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    a: Path, b: Path, score: str, moved: int, force: bool, resamples: int, seed: int, as_json: bool
) -> None:  # fmt: skip
    """Compare two outputs of `vcs-runtime score`, id by id: B minus A, its interval, two paired tests.

    Needs `vcs-runtime[experiments]`. Files that were scored differently are refused unless --force is given.
    """
    require("scipy", "experiments", "compare")
    try:
        found = compare_files(a, b, score=score, moved=moved, force=force, resamples=resamples, seed=seed)
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    else:
        _print(found)
    for name in found.left_out:
        click.echo(f"vcs-runtime: {name}: not scored in both files, left out", err=True)
    if found.left_out:
        raise click.exceptions.Exit(1)


def _print(found: Comparison) -> None:
    d = found.difference
    out = console()
    out.print(f"{found.score}, {found.pairs} pairs: {found.mean_a:.4f} in A, {found.mean_b:.4f} in B")
    out.print(f"difference {d.mean:+.4f}, 95 % interval {d.low:+.4f} .. {d.high:+.4f}")
    out.print(f"p {d.p_bootstrap:.4f} (paired bootstrap), {d.p_permutation:.4f} (permutation)\n")
    table = rich.table.Table("moved most", "A", "B", "B - A", box=None, pad_edge=False)
    for name, a, b in found.moved:
        table.add_row(name, f"{a:.4f}", f"{b:.4f}", f"{b - a:+.4f}")
    out.print(table)
    for name, line in zip("AB", found.signatures, strict=True):
        out.print(f"{name} {line}", soft_wrap=True)
