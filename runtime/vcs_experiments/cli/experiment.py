"""`vcs-runtime experiment`: the authors' experiments on your data and with your bundle."""

from __future__ import annotations

import click

from vcs_experiments.cli.authors import authors
from vcs_experiments.cli.clip_cc_bench import clip_cc_bench
from vcs_experiments.cli.corruption import corruption, parameters
from vcs_experiments.cli.make_corruptions import make_corruptions
from vcs_experiments.cli.rank import rank
from vcs_experiments.cli.vatex import vatex


@click.group()
def experiment() -> None:
    """Repeat the papers' experiments with your data.

    The commands need `vcs-runtime[experiments]`. docs/guide/experiments.md describes the data and
    the results.
    """


for command in (corruption, authors, vatex, rank, parameters, clip_cc_bench, make_corruptions):
    experiment.add_command(command)
