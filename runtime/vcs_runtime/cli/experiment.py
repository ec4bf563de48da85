"""`vcs-runtime experiment`: the authors' experiments on your data and with your bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from vcs_numba.threads import thread_count
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli.score import engine_of, engine_options, open_scorer
from vcs_runtime.cli.tables import console
from vcs_runtime.errors import BundleError, InputError
from vcs_runtime.experiments import authors as authors_study
from vcs_runtime.experiments import corruption as corruption_study
from vcs_runtime.experiments import corruptions, datasets
from vcs_runtime.experiments import parameters as parameters_study
from vcs_runtime.experiments import rank as rank_study
from vcs_runtime.experiments import vatex as vatex_study
from vcs_runtime.experiments.bertscore import TokenStates
from vcs_runtime.experiments.results import Results, shown
from vcs_runtime.experiments.running import Output
from vcs_runtime.experiments.scoring import KnownMetrics, LongMetrics
from vcs_runtime.experiments.statistics import RESAMPLES
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.segmentation.segmenter import Segmenter
from vcs_runtime.util.extras import require
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.progress import progress_bar

_PATH = click.Path(path_type=Path)
_WIDEST = 12  # columns of a table that is printed; the files have them all
_Decorated = Callable[..., Any]

_out = click.option("--out", type=_PATH, required=True, metavar="DIR", help="Where the results go.")
_threshold = click.option("--threshold", type=float, default=0.5, show_default=True, metavar="X",
                          help="A score from here on says that a text is valid.")  # fmt: skip
_seed = click.option("--seed", type=int, default=SEED, show_default=True)


def _resamples(default: int) -> _Decorated:
    return click.option(
        "--resamples", type=click.IntRange(min=100), default=default, show_default=True, metavar="N",
        help="Of the bootstrap and the permutation test.",
    )  # fmt: skip


def _lcts(*default: float) -> _Decorated:
    return click.option(
        "--lct", "lcts", type=click.FloatRange(min=0), multiple=True, default=default, show_default=True,
        metavar="X", help="Local Chronology Tolerance; may be given several times.",
    )  # fmt: skip


def _scored(function: _Decorated) -> _Decorated:
    """The options of every experiment that scores pairs."""
    options = [
        click.option("--resume", is_flag=True, help="Go on behind the last whole line of DIR/pairs.jsonl."),
        click.option("--overwrite", is_flag=True, help="Replace the results that are in DIR."),
        click.option("--workers", type=click.IntRange(min=1), metavar="N",
                     help="Processes for BLEU and ROUGE [default: all cores]."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return _out(engine_options(function))


_chunk_size = click.option(
    "--chunk-size", type=click.IntRange(min=1), default=1, show_default=True, metavar="K"
)


@click.group()
def experiment() -> None:
    """The authors' experiments on your data, with your bundle. Needs `vcs-runtime[experiments]`."""


@experiment.command()
@click.option("--data", type=_PATH, required=True, metavar="DIR", help="Holds comparison/SCENE.json; "
              "comparison-published/ and the graded series, if at hand.")  # fmt: skip
@_lcts(0.0, 1.0)
@_chunk_size
@_threshold
@click.option("--plots", "drawn", is_flag=True, help="Draw plots of the first VCS into --out.")
@_scored
def corruption(
    data: Path, lcts: tuple[float, ...], chunk_size: int, threshold: float, drawn: bool, **run: Any
) -> None:
    """Score every rewrite of every description; tell valid ones from corrupted ones."""
    if drawn:
        require_matplotlib()
    problems = _problems()
    cases, published = _read(data, problems)
    with _metrics(run, lcts, chunk_size) as (metrics, out):
        results = corruption_study.run(
            cases, published, metrics, out, problems, threshold=threshold,
            plots=f"VCS_LCT{lcts[0]:g}" if drawn else None,
        )  # fmt: skip
    _finish(results, out.folder)


@experiment.command()
@click.option("--data", type=_PATH, required=True, metavar="FILE",
              help="{scene: {author: text}}; or a folder of authorN.json, {scene: text}.")  # fmt: skip
@click.option("--published", "source", type=_PATH, metavar="FILE", help="Scores to compare with: scene, "
              "Comparison, then metrics.")  # fmt: skip
@_lcts(0.0, 1.0)
@_chunk_size
@_scored
def authors(data: Path, source: Path | None, lcts: tuple[float, ...], chunk_size: int, **run: Any) -> None:
    """Score all ordered pairs of authors who described the same scenes."""
    problems = _problems()
    texts = datasets.read_authors(data, problems)
    published = datasets.read_published_authors(source, problems) if source else {}
    with _metrics(run, lcts, chunk_size) as (metrics, out):
        results = authors_study.run(texts, published, metrics, out, problems)
    _finish(results, out.folder)


@experiment.command()
@click.option("--data", type=_PATH, required=True, metavar="FILE", help="JSONL: vid, refs, cands, scores.")
@click.option("--lct", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="X")
@_resamples(1000)
@_seed
@_scored
def vatex(data: Path, lct: float, resamples: int, seed: int, **run: Any) -> None:
    """Correlate VCS_short and its components, with 1 and 9 references, with human ratings."""
    problems = _problems()
    videos = datasets.read_vatex(data, problems)
    with _engine(run) as (scorer, known, out):
        metrics = vatex_study.ShortMetrics(scorer, known, lct=lct)
        results = vatex_study.run(videos, metrics, out, problems, resamples=resamples, seed=seed)
    _finish(results, out.folder)


@experiment.command()
@click.option(
    "--references", "source", type=_PATH, required=True, metavar="FILE", help="Texts by id: JSON or JSONL."
)
@click.option("--predictions", type=_PATH, required=True, metavar="DIR", help="MODEL.json: {id: text}.")
@click.option(
    "--ranking", type=_PATH, metavar="FILE", help="A ranking to compare with: a model a line, best first."
)
@click.option("--by", metavar="METRIC", help="The column to rank by [default: the first VCS].")
@_lcts(0.0)
@_chunk_size
@_resamples(RESAMPLES)
@_seed
@_scored
def rank(
    source: Path, predictions: Path, ranking: Path | None, by: str | None, lcts: tuple[float, ...],
    chunk_size: int, resamples: int, seed: int, **run: Any,
) -> None:  # fmt: skip
    """Score every model of a folder and rank them, with intervals and paired tests."""
    problems = _problems()
    references = datasets.read_descriptions(source, problems)
    models = rank_study.read_models(predictions, references, problems)
    given = rank_study.read_ranking(ranking, models, problems) if ranking else ()
    with _metrics(run, lcts, chunk_size) as (metrics, out):
        by = by or f"VCS_LCT{lcts[0]:g}"
        if by not in metrics.columns:
            raise click.UsageError(f"--by must be one of {', '.join(metrics.columns)}, not {by!r}")
        results = rank_study.run(
            references, models, metrics, by, out, problems, ranking=given,
            resamples=resamples, seed=seed,
        )  # fmt: skip
    _finish(results, out.folder)


@experiment.command()
@click.option("--data", type=_PATH, required=True, metavar="DIR", help="As for `corruption`.")
@click.option("--chunk-size", "chunk_sizes", type=click.IntRange(min=1), multiple=True, default=(1, 2, 3, 5),
              show_default=True, metavar="K", help="May be given several times.")  # fmt: skip
@_lcts(0.0, 0.1, 0.25, 0.5, 1.0)
@_threshold
@_out
@engine_options
def parameters(
    data: Path, chunk_sizes: tuple[int, ...], lcts: tuple[float, ...], threshold: float, out: Path,
    **engine: Any,
) -> None:  # fmt: skip
    """The measures of `corruption` under every chunk size and LCT: embedded once, aligned many times.

    Vectors are kept in --cache [default: vectors/ in --out]; started again, it goes on from there.
    """
    require("scipy", "experiments", "this experiment")
    problems = _problems()
    cases, published = _read(data, problems)
    engine["cache"] = engine["cache"] or out / "vectors"
    with open_scorer(engine) as scorer:
        results = parameters_study.run(
            cases, published, scorer, out, problems,
            chunk_sizes=chunk_sizes, lcts=lcts, threshold=threshold,
            log=lambda message: click.echo(f"vcs-runtime: {message}", err=True),
        )  # fmt: skip
    _finish(results, out)


@experiment.command("make-corruptions")
@click.option(
    "--references", "source", type=_PATH, required=True, metavar="FILE", help="Texts by id: JSON or JSONL."
)
@_seed
@_out
@click.option("--bundle", default="default", metavar="B", show_default=True, help="Whose segmenter cuts.")
@click.option("--segmenter", default="auto", metavar="auto|rules|learned", show_default=True)
@click.option("--device", default="auto", metavar="D", show_default=True, help="auto, cpu or cuda:N.")
def make_corruptions(source: Path, seed: int, out: Path, bundle: str, segmenter: str, device: str) -> None:
    """Corrupt your own descriptions, by segments: a data folder for `corruption`."""
    problems = _problems()
    texts = datasets.read_descriptions(source, problems)
    several = [name for name, text in texts.items() if not isinstance(text, str)]
    if several:
        raise InputError(f"{source}: {several[0]}: several references; one text each is corrupted")
    if (out / "comparison").exists():
        raise InputError(f"{out / 'comparison'}: it exists; give another --out")
    try:
        opened = Segmenter.open(bundle, device, use=segmenter)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with opened, progress_bar(len(texts), "corrupting", "texts") as advance:
        count = corruptions.make({name: str(text) for name, text in texts.items()}, opened, out, problems,
                                 seed=seed, advance=advance)  # fmt: skip
    click.echo(f"{count} scenes in {out}")
    _exit(problems.messages)


def _read(data: Path, problems: datasets.Problems) -> tuple[list[datasets.Case], dict[str, dict[str, float]]]:
    cases = datasets.read_cases(data, problems)
    folder = datasets.find_published(data, "comparison")
    return cases, datasets.read_published(folder, problems) if folder else {}


def _problems() -> datasets.Problems:
    return datasets.Problems(lambda message: click.echo(f"vcs-runtime: {message}", err=True))


@contextmanager
def _metrics(
    run: dict[str, Any], lcts: tuple[float, ...], chunk_size: int
) -> Iterator[tuple[LongMetrics, Output]]:
    if len(set(lcts)) < len(lcts):
        raise click.UsageError("--lct: a value is there twice")
    with _engine(run) as (scorer, known, out):
        yield LongMetrics(scorer, known, lcts=lcts, chunk_size=chunk_size), out


@contextmanager
def _engine(run: dict[str, Any]) -> Iterator[tuple[Scorer, KnownMetrics, Output]]:
    """What `_scored` gave a command, opened: the scorer, the known metrics, and where the results go."""
    require("scipy", "experiments", "this experiment")
    engine = engine_of(run)
    engine["bundle"] = bundle = open_bundle(engine["bundle"])
    workers = run["workers"] or thread_count()
    with open_scorer(engine) as scorer:
        try:
            states = TokenStates(bundle, scorer.embedder.device, engine["threads"])
        except BundleError as error:
            click.echo(f"vcs-runtime: BERTScore is left out: {error}", err=True)
            states = None
        with closing(KnownMetrics(workers, states)) as known:
            if not known.meteor:
                click.echo("vcs-runtime: METEOR is left out: NLTK has no wordnet and punkt_tab here "
                           "(docs/experiments.md says how to bring them)", err=True)  # fmt: skip
            out = Output(run["out"], run["resume"], run["overwrite"])
            out.folder.mkdir(parents=True, exist_ok=True)
            yield scorer, known, out


def _finish(results: Results, out: Path) -> None:
    """Print the tables, say what was left out; exit code 1 if anything was."""
    import rich.table

    for table in results.tables:
        kept = [i for i, name in enumerate(table.columns) if not name.endswith(" sd")][:_WIDEST]
        view = rich.table.Table(title=table.title, box=None, pad_edge=False, title_justify="left")
        for i in kept:
            view.add_column(table.columns[i], no_wrap=not i)
        for row in table.rows:
            view.add_row(*(shown(row[i]) for i in kept))
        console().print(view, "")
    click.echo(", ".join(f"{name}: {value}" for name, value in results.counts.items()))
    click.echo(results.signature)
    click.echo(f"all columns and pairs: {out}")
    _exit(results.problems)


def _exit(problems: Any) -> None:
    if problems:
        click.echo(f"vcs-runtime: {len(problems)} left out (see above)", err=True)
        raise click.exceptions.Exit(1)
