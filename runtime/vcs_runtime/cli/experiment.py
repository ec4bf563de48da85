"""`vcs-runtime experiment`: the authors' experiments on your data and with your bundle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.score import engine_options
from vcs_runtime.cli.tables import console
from vcs_runtime.experiments import layouts
from vcs_runtime.experiments.results import Results, Table
from vcs_runtime.scorer import Scorer

_PATH = click.Path(path_type=Path)


def _run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--out", type=_PATH, required=True, metavar="DIR", help="Where the results go."),
        click.option("--resume", is_flag=True, help="Go on behind the last whole line of DIR/pairs.jsonl."),
        click.option("--overwrite", is_flag=True, help="Replace the results that are in DIR."),
        click.option("--workers", type=click.IntRange(min=1), metavar="N",
                     help="Processes for BLEU and ROUGE [default: all cores]."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return engine_options(function)


@click.group()
def experiment() -> None:
    """The authors' experiments on your data, with your bundle. Needs `vcs-runtime[experiments]`."""


@experiment.command()
@click.option("--data", type=_PATH, required=True, metavar="DIR",
              help="Holds comparison/SCENE.json; and comparison-published/, series, if at hand.")  # fmt: skip
@click.option("--lct", "lcts", type=float, multiple=True, default=(0.0, 1.0), show_default=True, metavar="X")
@click.option("--chunk-size", type=click.IntRange(min=1), default=1, show_default=True, metavar="K")
@click.option(
    "--threshold", type=float, default=0.5, show_default=True, help="Scores from here on say valid."
)
@_run_options
def corruption(
    data: Path, lcts: tuple[float, ...], chunk_size: int, threshold: float,
    out: Path, resume: bool, overwrite: bool, workers: int | None, **engine: Any,
) -> None:  # fmt: skip
    """Score every rewrite of every description; tell valid ones from corrupted ones."""
    from vcs_runtime.experiments import corruption as study
    from vcs_runtime.experiments.scoring import Lexical, LongMetrics

    problems = _problems()
    cases = layouts.read_cases(data, problems)
    folder = layouts.find_published(data, "comparison")
    published = layouts.read_published(folder, problems) if folder else {}
    out.mkdir(parents=True, exist_ok=True)
    with _opened(engine) as scorer, _closing(Lexical(_workers(workers))) as lexical:
        metrics = LongMetrics(scorer, lexical, lcts=lcts, chunk_size=chunk_size, cache=engine["cache"])
        with _closing(metrics):
            results = study.run(
                cases,
                published,
                metrics,
                out,
                problems,
                resume=resume,
                overwrite=overwrite,
                threshold=threshold,
            )
    _finish(results, out)


def _problems() -> layouts.Problems:
    return layouts.Problems(lambda message: click.echo(f"vcs-runtime: {message}", err=True))


def _workers(given: int | None) -> int:
    return (
        given or len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else given or os.cpu_count() or 1
    )


@contextmanager
def _closing(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()


@contextmanager
def _opened(engine: dict[str, Any]) -> Iterator[Scorer]:
    try:
        scorer = Scorer.open(**engine)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with scorer:
        yield scorer


def _finish(results: Results, out: Path, shown: tuple[str, ...] = ()) -> None:
    """Print the tables, say what was left out; exit code 1 if anything was."""
    for table in results.tables:
        if not shown or table.name in shown:
            _print(table)
    click.echo(results.signature)
    click.echo(f"results in {out}: results.md, results.json, pairs.csv")
    if results.problems:
        click.echo(f"vcs-runtime: {len(results.problems)} left out, see {out / 'results.md'}", err=True)
        raise click.exceptions.Exit(1)


def _print(table: Table) -> None:
    import rich.table

    from vcs_runtime.experiments.results import shown

    view = rich.table.Table(*table.columns, title=table.title, box=None, pad_edge=False, title_justify="left")
    for row in table.rows:
        view.add_row(*map(shown, row))
    console().print(view)
