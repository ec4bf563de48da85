"""`vcs-runtime experiment`: the authors' experiments on your data and with your bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from vcs_experiments import authors as authors_study
from vcs_experiments import corruption as corruption_study
from vcs_experiments import parameters as parameters_study
from vcs_experiments import rank as rank_study
from vcs_experiments import vatex as vatex_study
from vcs_experiments.cli.beside import Beside, beside
from vcs_experiments.cli.clip_cc_bench import clip_cc_bench
from vcs_experiments.cli.make_corruptions import make_corruptions
from vcs_experiments.cli.results import finish
from vcs_experiments.datasets import published as published_scores
from vcs_experiments.datasets.published import Foreign, read_column
from vcs_experiments.datasets.texts import (
    Case,
    Problems,
    read_authors,
    read_cases,
    read_descriptions,
)
from vcs_experiments.metrics.scoring import KnownMetrics, LongMetrics
from vcs_experiments.results import Output, check_output
from vcs_numba.jit.threads import thread_count
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli.compare import correction, enough_resamples
from vcs_runtime.cli.inputs import open_scorer
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    PATH,
    Command,
    Decorator,
    Number,
    NumberRange,
    SectionedCommand,
    combined,
    csv_safe,
    further,
    max_read_mb,
    output_folder,
    overwrite,
    resume,
    scorer_options,
    together,
)
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.scoring.options import PRESETS, ScorerConfig
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.extras import require
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.presence import is_folder

_data = partial(click.option, "--data", type=PATH, required=True)
_threshold = click.option(
    "--threshold",
    type=Number(),
    default=0.5,
    show_default=True,
    metavar="X",
    help="Minimum score of a text that is classified as valid.",
)
_seed = click.option(
    "--seed", type=int, default=SEED, show_default=True, metavar="N", help="Random seed."
)
_output = together(output_folder(help="Folder for the results."), csv_safe, max_read_mb)
_references = click.option(
    "--references",
    "source",
    type=PATH,
    required=True,
    metavar="FILE",
    help="File of reference texts by id, such as JSON {id: text}.",
)
_predictions = click.option(
    "--predictions",
    type=PATH,
    required=True,
    metavar="DIR",
    help="Folder with a file for each model, such as MODEL.json.",
)
_ranking = click.option(
    "--ranking",
    type=PATH,
    metavar="FILE",
    help="Ranking to compare with: one model per line, best first.",
)


def _read_columns(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, Foreign]:
    columns: dict[str, Foreign] = {}
    for value in values:
        name, _, file = value.partition("=")
        if not name or not file:
            raise click.BadParameter(f"{value!r} is not NAME=FILE")
        if name in columns:
            raise click.BadParameter(f"two columns are called {name!r}")
        columns[name] = read_column(name, Path(file))
    return columns


_columns = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=FILE",
    callback=_read_columns,
    help=(
        "Scores of another metric to show beside ours: a file of any format with ids "
        "and numbers; may be repeated."
    ),
)


def _lcts(*default: float, help: str = "Local Chronology Tolerance; may be repeated.") -> Decorator:
    return click.option(
        "--lct",
        "lcts",
        type=NumberRange(min=0),
        multiple=True,
        default=default,
        show_default=bool(default),
        metavar="X",
        callback=_without_repetition,
        help=help,
    )


def _chunk_sizes(*default: int) -> Decorator:
    return click.option(
        "--chunk-size",
        "chunk_sizes",
        type=click.IntRange(min=1),
        multiple=True,
        default=default,
        show_default=True,
        metavar="K",
        callback=_without_repetition,
        help="Number of sentences joined to one chunk; may be repeated.",
    )


def _without_repetition(
    context: click.Context, parameter: click.Parameter, values: tuple[float, ...]
) -> tuple[float, ...]:
    if len(set(values)) < len(values):
        raise click.BadParameter("a value is repeated")
    return values


# Settings of the papers: those of their tables, in one pass, and those that their text states.
_PRESETS = {"tables": (PRESETS["default"], PRESETS["table-lct1"]), "paper": (PRESETS["paper"],)}
_preset = click.option(
    "--preset",
    type=click.Choice(list(_PRESETS)),
    default="tables",
    show_default=True,
    help="Chunk size and LCTs of the papers' tables (1; 0 and 1), or of their text (3; 0.1).",
)
_preset_lcts = _lcts(help="Local Chronology Tolerance; may be repeated. [default: the preset's]")


@dataclass(frozen=True)
class _Settings:
    """How VCS is computed."""

    lcts: tuple[float, ...]
    chunk_size: int = 1


def _settings(preset: str, lcts: tuple[float, ...], chunk_size: int | None = None) -> _Settings:
    chosen = _PRESETS[preset]
    return _Settings(lcts or tuple(lct for _, lct in chosen), chunk_size or chosen[0][0])


_papers = combined(
    "settings",
    _settings,
    _preset,
    _preset_lcts,
    click.option(
        "--chunk-size",
        type=click.IntRange(min=1),
        metavar="K",
        help="Number of sentences joined to one chunk. [default: the preset's]",
    ),
)


@dataclass(frozen=True)
class _Run:
    """How an experiment runs that scores pairs."""

    config: ScorerConfig
    output: Output
    workers: int
    beside: Beside

    @contextmanager
    def opened(
        self, references: Iterable[Sequence[str]], *sources: Path | None
    ) -> Iterator[tuple[Scorer, KnownMetrics]]:
        """Yield the scorer and the metrics of other packages, after creating the output folder.

        `references` are those of each item. Raises InputError if the output would replace one of
        `sources`.
        """
        check_output(
            self.output.folder, *sources, self.beside.idf_references, self.beside.bertscore_baseline
        )
        require("scipy", "experiments", "this experiment")
        corpus = self.beside.corpus(references)
        bundle = open_bundle(self.config.bundle)  # type: ignore[arg-type]
        with open_scorer(replace(self.config, bundle=bundle)) as scorer:
            embedder, threads = scorer.embedder, self.config.threads
            with closing(
                self.beside.opened(bundle, embedder, threads, self.workers, corpus)
            ) as known:
                self.output.folder.mkdir(parents=True, exist_ok=True)
                yield scorer, known


def _run(
    output: Path,
    resume: bool,
    overwrite: bool,
    workers: int | None,
    config: ScorerConfig,
    beside: Beside,
) -> _Run:
    return _Run(config, Output(output, resume, overwrite), workers or thread_count(), beside)


def _scored(command: Command) -> Command:
    """Add the options of an experiment that scores pairs; the command receives `run`, a `_Run`."""
    return scorer_options(
        beside()(
            combined(
                "run",
                _run,
                together(
                    _output,
                    resume,
                    overwrite,
                    click.option(
                        "--workers",
                        type=click.IntRange(min=1),
                        metavar="N",
                        help="Number of processes for BLEU and ROUGE. [default: all cores]",
                    ),
                ),
            )(command)
        )
    )


@click.group()
def experiment() -> None:
    """Run the authors' experiments on your data.

    Needs `vcs-runtime[experiments]`. docs/guide/experiments.md describes the data and the results.
    """


@experiment.command(cls=SectionedCommand)
@_data(
    metavar="DIR",
    help=(
        "Folder with comparison/SCENE.json, and optionally comparison-published/ and the "
        "graded series."
    ),
)
@_papers
@_threshold
@_columns
@click.option("--plots", "drawn", is_flag=True, help="Draw plots of the first VCS into --output.")
@_scored
def corruption(
    data: Path,
    settings: _Settings,
    threshold: float,
    columns: dict[str, Foreign],
    drawn: bool,
    run: _Run,
) -> None:
    """Separate valid rewrites of texts from corrupted ones.

    Every rewrite of every description is scored by VCS and by other metrics.

    \b
    Example:
      vcs-runtime experiment corruption --data authors -o results --plots
    """
    if drawn:
        require_matplotlib()
    problems = Problems(warn)
    cases, published = _read(data, problems)
    with run.opened(([case.reference] for case in cases), *_paths(columns)) as (scorer, known):
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


@experiment.command(cls=SectionedCommand)
@_data(
    metavar="FILE",
    help="JSON file {scene: {author: text}}, or folder of authorN.json {scene: text}.",
)
@click.option(
    "--published",
    "source",
    type=PATH,
    metavar="FILE",
    help=(
        "CSV file of scores to compare with: "
        "scene, Comparison, then metrics; or a folder. [default: that of a checkout]"
    ),
)
@_papers
@_scored
def authors(data: Path, source: Path | None, settings: _Settings, run: _Run) -> None:
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


@experiment.command(cls=SectionedCommand)
@_data(metavar="FILE", help="JSONL file with vid, refs, cands and scores.")
@combined("settings", _settings, _preset, _preset_lcts)
@_columns
@click.option(
    "--resamples",
    type=click.IntRange(min=100),
    default=1000,
    show_default=True,
    metavar="N",
    help="Number of resamples of the bootstrap.",
)
@_seed
@_scored
def vatex(
    data: Path,
    settings: _Settings,
    columns: dict[str, Foreign],
    resamples: int,
    seed: int,
    run: _Run,
) -> None:
    """Correlate VCS_short with human ratings of captions.

    VCS_short, its parts and other metrics are correlated with the ratings, with 1 and with 9
    references. Words are its chunks, whatever the preset.

    \b
    Example:
      vcs-runtime experiment vatex --data vatex-eval.jsonl -o results
    """
    problems = Problems(warn)
    videos = vatex_study.read_vatex(data, problems)
    with run.opened((video.references for video in videos), data, *_paths(columns)) as (
        scorer,
        known,
    ):
        metrics = vatex_study.ShortMetrics(scorer, known, lcts=settings.lcts)
        metrics.add(columns)
        results = vatex_study.run(
            videos, metrics, run.output, problems, resamples=resamples, seed=seed
        )
    finish(results, run.output.folder)


@experiment.command(cls=SectionedCommand)
@_references
@_predictions
@_ranking
@_columns
@click.option(
    "--by",
    metavar="METRIC",
    help="Column to rank by. [default: the first VCS; its margin if VCS is 0 for most texts]",
)
@click.option(
    "--baseline", metavar="MODEL", help="Model that all others are tested against. [default: none]"
)
@click.option("--all-pairs", is_flag=True, help="Test all pairs of models.")
@correction
@_lcts(0.0)
@click.option(
    "--chunk-size",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="K",
    help="Number of sentences joined to one chunk.",
)
@further
@enough_resamples
@_seed
@_scored
def rank(
    source: Path,
    predictions: Path,
    ranking: Path | None,
    columns: dict[str, Foreign],
    by: str | None,
    baseline: str | None,
    all_pairs: bool,
    correction: str,
    lcts: tuple[float, ...],
    chunk_size: int,
    also: tuple[str, ...],
    resamples: int | None,
    seed: int,
    run: _Run,
) -> None:
    """Rank the models of a folder by their scores.

    The ranking comes with bootstrap intervals and paired tests between neighbours; and, on request,
    of all models against a baseline or against each other, as `vcs-runtime compare` makes them.

    \b
    Example:
      vcs-runtime experiment rank --references refs.json --predictions models -o results
    """
    problems = Problems(warn)
    references = read_descriptions(source, problems)
    models = rank_study.read_models(predictions, references, problems)
    other_ranking = rank_study.read_ranking(ranking, models, problems) if ranking else ()
    if baseline and baseline not in models:
        raise click.UsageError(f"--baseline must be one of {', '.join(models)}, not {baseline!r}")
    documents = ([text] if isinstance(text, str) else text for text in references.values())
    sources = source, ranking, predictions / "results.json", *_paths(columns)
    with run.opened(documents, *sources) as (scorer, known):
        metrics = LongMetrics(scorer, known, lcts=lcts, chunk_size=chunk_size, also=also)
        metrics.add(columns)
        if by and by not in metrics.columns:
            raise click.UsageError(f"--by must be one of {', '.join(metrics.columns)}, not {by!r}")
        results = rank_study.run(
            references,
            models,
            metrics,
            by,
            run.output,
            problems,
            ranking=other_ranking,
            baseline=baseline,
            all_pairs=all_pairs,
            correction=correction,
            resamples=resamples,
            seed=seed,
            segmenter=scorer.segmenter,
        )
    finish(results, run.output.folder)


@experiment.command(cls=SectionedCommand)
@_data(metavar="DIR", help="Data folder, as for `corruption`.")
@_chunk_sizes(1, 2, 3, 5)
@_lcts(0.0, 0.1, 0.25, 0.5, 1.0)
@_threshold
@_output
@scorer_options
def parameters(
    data: Path,
    chunk_sizes: tuple[int, ...],
    lcts: tuple[float, ...],
    threshold: float,
    output: Path,
    config: ScorerConfig,
) -> None:
    """Repeat `corruption` with many chunk sizes and LCTs.

    Texts are embedded once, and aligned with every setting.

    \b
    Example:
      vcs-runtime experiment parameters --data authors -o results --chunk-size 1 --lct 0 --lct 1
    """
    require("scipy", "experiments", "this experiment")
    problems = Problems(warn)
    cases, published = _read(data, problems)
    output.mkdir(parents=True, exist_ok=True)  # not after hours
    with open_scorer(config) as scorer:
        results = parameters_study.run(
            cases,
            published,
            scorer,
            problems,
            chunk_sizes=chunk_sizes,
            lcts=lcts,
            threshold=threshold,
            log=warn,
        )
    finish(results, output)


experiment.add_command(clip_cc_bench)
experiment.add_command(make_corruptions)


def _paths(columns: dict[str, Foreign]) -> list[Path]:
    return [column.path for column in columns.values()]


def _read(data: Path, problems: Problems) -> tuple[list[Case], dict[str, dict[str, float]]]:
    cases = read_cases(data, problems)
    folder = published_scores.find_published(data, "comparison")
    return cases, published_scores.read_published(folder, problems) if folder else {}
