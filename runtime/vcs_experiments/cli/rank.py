"""`vcs-runtime experiment rank`: the models of a folder, ranked by their scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from vcs_experiments import rank as rank_study
from vcs_experiments.cli.results import finish
from vcs_experiments.cli.shared import (
    Run,
    Settings,
    columns_option,
    lcts_option,
    paths_of,
    references_option,
    scored,
)
from vcs_experiments.datasets.published import Foreign
from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.metrics.scoring import LongMetrics
from vcs_experiments.rank import RankOptions
from vcs_runtime.cli.compare import correction, enough_resamples, seed_option
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, SectionedCommand, combined, further, together


@click.command(cls=SectionedCommand)
@references_option
@click.option(
    "--predictions",
    type=PATH,
    required=True,
    metavar="DIR",
    help="Folder with one file per model, such as MODEL.json.",
)
@click.option(
    "--ranking",
    type=PATH,
    metavar="FILE",
    help="File with a ranking to compare with: one model per line, best first.",
)
@columns_option
@click.option(
    "--by",
    metavar="METRIC",
    help="Column to rank by. [default: the first VCS, or its margin if VCS is 0 for most texts]",
)
@click.option("--baseline", metavar="MODEL", help="Model to compare all other models with.")
@click.option("--all-pairs", is_flag=True, help="Test all pairs of models.")
@lcts_option(0)
@click.option(
    "--chunk-size",
    type=click.IntRange(min=1),
    default=1,
    metavar="K",
    help="Number of sentences per chunk.",
)
@further
@together(correction, enough_resamples, seed_option, advanced=True)
@scored
@combined("settings", Settings)
@combined("options", RankOptions)
def rank(
    source: Path,
    predictions: Path,
    ranking: Path | None,
    columns: dict[str, Foreign],
    options: RankOptions,
    settings: Settings,
    run: Run,
) -> None:
    """Rank models by the scores of their texts.

    The ranking has bootstrap intervals, and a paired test of each model against the next.
    --baseline or --all-pairs adds the tests of `vcs-runtime compare`.

    \b
    Example:
      vcs-runtime experiment rank --references refs.json \\
        --predictions models -o results
    """
    problems = Problems(warn)
    references = read_descriptions(source, problems)
    models = rank_study.read_models(predictions, references, problems)
    if ranking:
        other_ranking = rank_study.read_ranking(ranking, models, problems)
        options = replace(options, other_ranking=other_ranking)
    if options.baseline and options.baseline not in models:
        raise click.UsageError(
            f"--baseline must be one of {', '.join(models)}, not {options.baseline!r}"
        )
    documents = ([text] if isinstance(text, str) else text for text in references.values())
    sources = source, ranking, predictions / "results.json", *paths_of(columns)
    with run.opened(documents, *sources) as (scorer, known):
        metrics = LongMetrics(
            scorer,
            known,
            lcts=settings.lcts,
            chunk_size=settings.chunk_size,
            also=settings.also,
        )
        metrics.add(columns)
        if options.by and options.by not in metrics.columns:
            raise click.UsageError(
                f"--by must be one of {', '.join(metrics.columns)}, not {options.by!r}"
            )
        results = rank_study.run(
            references, models, metrics, run.output, problems, options, scorer.segmenter
        )
    finish(results, run.output.folder)
