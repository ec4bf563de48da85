"""`vcs-runtime experiment corruption`, and `parameters`, which repeats it with other settings."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_experiments import corruption as corruption_study
from vcs_experiments import parameters as parameters_study
from vcs_experiments.cli.results import finish
from vcs_experiments.cli.shared import (
    Run,
    Settings,
    columns_option,
    data_option,
    lcts_option,
    output_options,
    paper_settings,
    paths_of,
    scored,
    without_repetition,
)
from vcs_experiments.datasets import published as published_scores
from vcs_experiments.datasets.published import Foreign
from vcs_experiments.datasets.texts import Case, Problems, read_cases
from vcs_experiments.metrics.scoring import LongMetrics
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.notices import open_scorer
from vcs_runtime.cli.options import Number, SectionedCommand, combined, scorer_options
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.util.extras import require
from vcs_runtime.util.figures import require_matplotlib

_threshold = click.option(
    "--threshold",
    type=Number(),
    default=0.5,
    metavar="X",
    help="Minimum score at which a text is classified as valid.",
)


@click.command(cls=SectionedCommand)
@data_option(
    metavar="DIR",
    help=(
        "Folder with comparison/SCENE.json, and optionally comparison-published/ and "
        "the graded series."
    ),
)
@paper_settings
@_threshold
@columns_option
@click.option(
    "--plots",
    "drawn",
    is_flag=True,
    help="Draw plots of the first VCS into the folder of --output.",
)
@scored
def corruption(
    data: Path,
    settings: Settings,
    threshold: float,
    columns: dict[str, Foreign],
    drawn: bool,
    run: Run,
) -> None:
    """Test if VCS tells valid rewrites from corrupted ones.

    Every rewrite of every description is scored, by VCS and by other metrics.

    \b
    Example:
      vcs-runtime experiment corruption --data corrupted -o results --plots
    """
    if drawn:
        require_matplotlib()
    problems = Problems(warn)
    cases, published = _read(data, problems)
    references = ([case.reference] for case in cases)
    with run.opened(references, *paths_of(columns)) as (scorer, known):
        metrics = LongMetrics(scorer, known, lcts=settings.lcts, chunk_size=settings.chunk_size)
        metrics.add(columns)
        results = corruption_study.run(
            cases,
            published,
            metrics,
            run.output,
            problems,
            threshold=threshold,
            plots=f"VCS_LCT{settings.lcts[0]:g}" if drawn else None,
        )
    finish(results, run.output.folder)


@click.command(cls=SectionedCommand)
@data_option(metavar="DIR", help="Folder with data, as for `corruption`.")
@click.option(
    "--chunk-size",
    "chunk_sizes",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1, 2, 3, 5),
    metavar="K",
    callback=without_repetition,
    help="Number of sentences per chunk; may be repeated.",
)
@lcts_option(0, 0.1, 0.25, 0.5, 1)
@_threshold
@output_options
@scorer_options
@combined("settings", parameters_study.Settings)
def parameters(
    data: Path, settings: parameters_study.Settings, output: Path, config: ScorerConfig
) -> None:
    """Repeat `corruption` with many chunk sizes and LCTs.

    Texts are embedded once, and aligned with every setting.

    \b
    Example:
      vcs-runtime experiment parameters --data corrupted -o results \\
        --chunk-size 1 --lct 0 --lct 1
    """
    require("scipy", "experiments", "this experiment")
    problems = Problems(warn)
    cases, published = _read(data, problems)
    # Before hours of work.
    output.mkdir(parents=True, exist_ok=True)
    with open_scorer(config) as scorer:
        results = parameters_study.run(cases, published, scorer, problems, settings, log=warn)
    finish(results, output)


def _read(data: Path, problems: Problems) -> tuple[list[Case], dict[str, dict[str, float]]]:
    """Read the rewrites, and their published scores if there are any."""
    cases = read_cases(data, problems)
    folder = published_scores.find_published(data, "comparison")
    published = published_scores.read_published(folder, problems) if folder else {}
    return cases, published
