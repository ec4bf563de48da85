"""`vcs-runtime experiment vatex`: VCS_short against human ratings of captions."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_experiments import vatex as vatex_study
from vcs_experiments.cli.results import finish
from vcs_experiments.cli.shared import (
    Run,
    Settings,
    columns_option,
    data_option,
    paths_of,
    scored,
    short_settings,
)
from vcs_experiments.datasets.published import Foreign
from vcs_experiments.datasets.texts import Problems
from vcs_runtime.cli.compare import seed_option
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import SectionedCommand


@click.command(cls=SectionedCommand)
@data_option(metavar="FILE", help="JSONL file with the fields vid, refs, cands and scores.")
@short_settings
@columns_option
@click.option(
    "--resamples",
    type=click.IntRange(min=100),
    default=1000,
    metavar="N",
    help="Number of resamples of the bootstrap.",
)
@seed_option
@scored
def vatex(
    data: Path,
    settings: Settings,
    columns: dict[str, Foreign],
    resamples: int,
    seed: int,
    run: Run,
) -> None:
    """Correlate VCS_short with human ratings of captions.

    VCS_short, its parts and other metrics are correlated with the ratings, with 1 and with 9
    references. The chunks of VCS_short are words, whatever the preset.

    \b
    Example:
      vcs-runtime experiment vatex --data vatex-eval.jsonl -o results
    """
    problems = Problems(warn)
    videos = vatex_study.read_vatex(data, problems)
    references = (video.references for video in videos)
    with run.opened(references, data, *paths_of(columns)) as (scorer, known):
        metrics = vatex_study.ShortMetrics(scorer, known, lcts=settings.lcts)
        metrics.add(columns)
        results = vatex_study.run(
            videos, metrics, run.output, problems, resamples=resamples, seed=seed
        )
    finish(results, run.output.folder)
