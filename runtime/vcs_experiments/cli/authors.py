"""`vcs-runtime experiment authors`: texts of several authors on the same scenes."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_experiments import authors as authors_study
from vcs_experiments.cli.results import finish
from vcs_experiments.cli.shared import Run, Settings, data_option, paper_settings, scored
from vcs_experiments.datasets import published as published_scores
from vcs_experiments.datasets.texts import Problems, read_authors
from vcs_experiments.metrics.scoring import LongMetrics
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, SectionedCommand
from vcs_runtime.util.presence import is_folder


@click.command(cls=SectionedCommand)
@data_option(
    metavar="FILE",
    help="JSON file {scene: {author: text}}, or a folder of authorN.json {scene: text}.",
)
@click.option(
    "--published",
    "source",
    type=PATH,
    metavar="FILE",
    help=(
        "CSV file of scores to compare with (scene, Comparison, metrics), or a folder "
        "of such files. [default: the files in the folder of --data, if any]"
    ),
)
@paper_settings
@scored
def authors(data: Path, source: Path | None, settings: Settings, run: Run) -> None:
    """Compare texts of several authors on the same scenes.

    All ordered pairs of authors are scored, by VCS and by other metrics.

    \b
    Example:
      vcs-runtime experiment authors --data authors.json -o results
    """
    problems = Problems(warn)
    texts = read_authors(data, problems)
    if source is None and is_folder(data):
        source = published_scores.find_published(data, "authors")
    published = published_scores.read_published_authors(source, problems) if source else {}
    references = ([text] for by_author in texts.values() for text in by_author.values())
    with run.opened(references, data, source) as (scorer, known):
        metrics = LongMetrics(scorer, known, lcts=settings.lcts, chunk_size=settings.chunk_size)
        results = authors_study.run(texts, published, metrics, run.output, problems)
    finish(results, run.output.folder)
