"""Options that several commands of `vcs-runtime experiment` share, and how an experiment runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from vcs_experiments.cli.beside import Beside, beside
from vcs_experiments.datasets.published import Foreign, read_column
from vcs_experiments.metrics.scoring import KnownMetrics
from vcs_experiments.results import Output, check_output
from vcs_numba.jit.threads import thread_count
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli.notices import open_scorer
from vcs_runtime.cli.options import (
    PATH,
    Command,
    Decorator,
    NumberRange,
    combined,
    csv_safe,
    max_read_mb,
    output_folder,
    overwrite,
    resume,
    scorer_options,
    together,
)
from vcs_runtime.scoring.options import PRESETS, ScorerConfig
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.extras import require

data_option = partial(click.option, "--data", type=PATH, required=True)
references_option = click.option(
    "--references",
    "source",
    type=PATH,
    required=True,
    metavar="FILE",
    help="File of reference texts by id, such as JSON {id: text}.",
)
output_options = together(
    output_folder(help="Folder for the results."), together(csv_safe, max_read_mb, advanced=True)
)


def _read_columns(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, Foreign]:
    """Read the files of --column, by name."""
    columns: dict[str, Foreign] = {}
    for value in values:
        name, _, file = value.partition("=")
        if not name or not file:
            raise click.BadParameter(f"{value!r} is not NAME=FILE")
        if name in columns:
            raise click.BadParameter(f"two columns are called {name!r}: give each another NAME")
        columns[name] = read_column(name, Path(file))
    return columns


columns_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=FILE",
    callback=_read_columns,
    help=(
        "Scores of another metric to show in addition: a file with ids and numbers, in "
        "any input format; may be repeated."
    ),
)


def lcts_option(*default: float, note: str = "") -> Decorator:
    """Return the option --lct with its default values."""
    return click.option(
        "--lct",
        "lcts",
        type=NumberRange(min=0),
        multiple=True,
        default=default,
        metavar="X",
        callback=without_repetition,
        help=(
            "Local Chronology Tolerance: allowed disorder, in window heights; may be repeated."
            f"{note}"
        ),
    )


def without_repetition(
    context: click.Context, parameter: click.Parameter, values: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the values of an option that may be repeated; refuse equal ones."""
    if len(set(values)) < len(values):
        raise click.BadParameter("the same value is given twice")
    return values


# Chunk sizes and LCTs of the papers: of their tables, in one pass, and of their text.
_PRESETS = {"tables": (PRESETS["default"], PRESETS["table-lct1"]), "paper": (PRESETS["paper"],)}
_preset = click.option(
    "--preset",
    type=click.Choice(list(_PRESETS)),
    default="tables",
    help="Chunk size and LCTs of the papers' tables (1; 0 and 1) or of their text (3; 0.1).",
)
_preset_lcts = lcts_option(note=" [default: as in --preset]")


@dataclass(frozen=True)
class Settings:
    """How VCS is computed."""

    lcts: tuple[float, ...]
    chunk_size: int = 1
    also: tuple[str, ...] = ()


def _settings(preset: str, lcts: tuple[float, ...], chunk_size: int | None = None) -> Settings:
    """Return a preset's settings, with the user's LCTs and chunk size in their place."""
    preset_size, _ = _PRESETS[preset][0]
    preset_lcts = tuple(lct for _, lct in _PRESETS[preset])
    return Settings(lcts or preset_lcts, chunk_size or preset_size)


#: Options of `Settings`; the command receives `settings`.
paper_settings = combined(
    "settings",
    _settings,
    _preset,
    _preset_lcts,
    click.option(
        "--chunk-size",
        type=click.IntRange(min=1),
        metavar="K",
        help="Number of sentences per chunk. [default: as in --preset]",
    ),
)
#: The same without a chunk size, for words as chunks.
short_settings = combined("settings", _settings, _preset, _preset_lcts)


@dataclass(frozen=True)
class Run:
    """How an experiment that scores pairs is run."""

    config: ScorerConfig
    output: Output
    workers: int
    beside: Beside

    @contextmanager
    def opened(
        self, references: Iterable[Sequence[str]], *sources: Path | None
    ) -> Iterator[tuple[Scorer, KnownMetrics]]:
        """Yield the scorer and the metrics of other packages, after creating the output folder.

        `references` holds the references of each item. Raises InputError if the output would
        replace one of `sources`.
        """
        check_output(
            self.output.folder, *sources, self.beside.idf_references, self.beside.bertscore_baseline
        )
        require("scipy", "experiments", "this experiment")
        corpus = self.beside.corpus(references)
        bundle = open_bundle(self.config.bundle)  # type: ignore[arg-type]
        with open_scorer(replace(self.config, bundle=bundle)) as scorer:
            embedder, threads = scorer.embedder, self.config.threads
            known = self.beside.opened(bundle, embedder, threads, self.workers, corpus)
            with closing(known):
                self.output.folder.mkdir(parents=True, exist_ok=True)
                yield scorer, known


def _run(
    output: Path,
    resume: bool,
    overwrite: bool,
    workers: int | None,
    config: ScorerConfig,
    beside: Beside,
) -> Run:
    return Run(config, Output(output, resume, overwrite), workers or thread_count(), beside)


_workers = click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes that compute BLEU and ROUGE. [default: all cores]",
)


def scored(command: Command) -> Command:
    """Add the options of an experiment that scores pairs; the command receives `run`, a `Run`."""
    # The outer decorators make `config` and `beside`, which `_run` needs.
    command = combined("run", _run, together(output_options, resume, overwrite, _workers))(command)
    command = beside()(command)
    return scorer_options(command)


def paths_of(columns: dict[str, Foreign]) -> list[Path]:
    """Return the files of columns that were computed elsewhere."""
    return [column.path for column in columns.values()]
