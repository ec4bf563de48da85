"""Ranks models by how well they describe, and tests whether the differences are chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.metrics.scoring import Job, Metrics, ScoresById
from vcs_experiments.results import Output, Results, run_jobs
from vcs_experiments.statistics import Significance
from vcs_runtime.comparing import systems
from vcs_runtime.comparing import tables as comparison_tables
from vcs_runtime.comparing.statistics import Values
from vcs_runtime.comparing.systems import (
    Counts,
    PairedTest,
    compare_systems,
    enough_resamples,
    paired_tests,
)
from vcs_runtime.comparing.tables import NEXT_COLUMNS, Cell, Table, describe_correction, test_cells
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.bootstrap import mean_interval
from vcs_runtime.jobs.readers.input_file import files_of
from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.scoring.preparation import segmenters_of
from vcs_runtime.segmentation.custom import ScoringSegmenter
from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.presence import is_folder
from vcs_runtime.util.reading import read_whole

Texts = Mapping[str, str | list[str]]


def read_models(folder: Path, references: Texts, problems: Problems) -> dict[str, dict[str, str]]:
    """Read the predictions of several models, by model and id, from one file a model."""
    if not is_folder(folder):
        raise InputError(f"{folder}: no such folder")
    models: dict[str, dict[str, str]] = {}
    for path in files_of([folder]):
        if path.stem in models:
            raise InputError(f"{path}: model {path.stem} occurs twice")
        texts = read_descriptions(path, problems, predictions=True)
        models[path.stem] = usable_predictions(texts, references)
        for name in sorted(references.keys() - texts.keys()):
            problems.add(f"{path}: no prediction for {name}")
        rest = sorted(texts.keys() - models[path.stem].keys())
        if rest:
            problems.add(
                f"{path}: {rest[0]} is left out, because it has no reference or is not one text"
                f" ({len(rest)} in all)"
            )
    return models


def usable_predictions(texts: Texts, references: Texts) -> dict[str, str]:
    """Return the single texts that have a reference."""
    usable = {}
    for name, text in texts.items():
        if name in references and isinstance(text, str):
            usable[name] = text
    return usable


def read_ranking(path: Path, models: Mapping[str, object], problems: Problems) -> list[str]:
    """Read a ranking from a text file: one model a line, best first; case does not matter."""
    known = {name.lower(): name for name in models}
    try:
        text = read_whole(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {error}") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.lower() not in known:
            problems.add(f"{path}: there are no predictions of model {line}")
    ranking = [known[line.lower()] for line in lines if line.lower() in known]
    if len(set(ranking)) != len(ranking):
        raise InputError(f"{path}: a model occurs twice")
    if len(ranking) < 2:
        raise InputError(f"{path}: the ranking must name at least two of the models")
    return ranking


@dataclass(frozen=True)
class RankOptions(Significance):
    """How models are ranked and compared."""

    by: str | None = None  # column; None: the first VCS, or its margin if VCS is mostly 0
    baseline: str | None = None  # model that all others are tested against
    all_pairs: bool = False  # whether all pairs of models are tested
    other_ranking: Sequence[str] = ()  # models, best first, to compare the ranking with


@dataclass(frozen=True)
class _Scored:
    """The scores of all models."""

    scores: ScoresById  # by "MODEL/ID"
    common: Sequence[str]  # ids that every model has a score for
    values: Mapping[str, Mapping[str, Values]]  # of the common ids, by column and model
    vcs: str  # the first column of VCS
    zeros: Mapping[str, int]  # texts whose VCS is 0, by model


def run(
    references: Texts,
    models: Mapping[str, Mapping[str, str]],
    metrics: Metrics,
    out: Output,
    problems: Problems,
    options: RankOptions,
    segmenter: ScoringSegmenter | None = None,
) -> Results:
    """Score all models, and rank them by a mean score.

    Means are over the ids that every model has a score for. Otherwise a model would gain by leaving
    out the hard ones. Without a `segmenter` the results do not name the segmenters of the texts.
    """
    jobs = _jobs(references, models)
    scores = run_jobs(jobs, metrics, out, problems, keys=("model", "id"))
    scored = _scored(scores, references, models, metrics.columns)
    by, notes = options.by, list[str]()
    if by is None:
        by, notes = _default_column(scored)
    common_jobs = [job for job in jobs if job.id.partition("/")[2] in scored.common]
    mix = _mix(common_jobs, segmenter)
    notes += mix.sentences(dict.fromkeys(models, metrics.signature))

    order = sorted(models, key=lambda model: (-scored.values[by][model].mean(), model))
    number = len(order) - 1
    if options.all_pairs:
        number = len(order) * (len(order) - 1) // 2
    resamples = options.resamples or enough_resamples(number, options.correction)
    tests = paired_tests(
        {by: scored.values[by]},
        list(pairwise(order)),
        resamples=resamples,
        correction=options.correction,
        seed=options.seed,
    )

    tables = [_ranking(order, scored, by, tests, options)]
    if options.baseline or options.all_pairs:
        counts, unscored = _counts(order, scored, references, models)
        comparison = compare_systems(
            {by: scored.values[by]},
            counts,
            dict.fromkeys(order, metrics.signature),
            options.baseline or order[0],
            systems.Significance(
                correction=options.correction,
                all_pairs=options.all_pairs,
                resamples=resamples,
                seed=options.seed,
            ),
        )
        comparison = replace(comparison, mix=mix, left_out=unscored)
        tables += comparison_tables.tables(comparison)
        write_whole(out.folder / "comparison.tex", comparison_tables.latex(comparison))
    if options.other_ranking:
        tables.append(_agreement(options.other_ranking, scored.values))
    totals = {
        "models": len(models),
        "pairs": len(jobs),
        "scored": len(scores),
        "ids of all models": len(scored.common),
    }
    settings = {
        "by": by,
        "correction": options.correction,
        "resamples": resamples,
        "seed": options.seed,
    }
    return Results("rank", metrics.signature, settings, totals, problems.messages, notes, tables)


def _jobs(references: Texts, models: Mapping[str, Mapping[str, str]]) -> list[Job]:
    """Return a job for each predicted text, model by model."""
    jobs = []
    for model, texts in models.items():
        for name, reference in references.items():
            if name in texts:
                sides = (reference,) if isinstance(reference, str) else tuple(reference)
                jobs.append(Job(f"{model}/{name}", sides, texts[name]))
    return jobs


def _scored(
    scores: ScoresById,
    references: Texts,
    models: Mapping[str, Mapping[str, str]],
    columns: Sequence[str],
) -> _Scored:
    """Sort the scores by column and model; raise InputError if there is no common id."""
    common = [name for name in references if all(f"{model}/{name}" in scores for model in models)]
    if not common:
        raise InputError("the models cannot be ranked, because no id has scores of all models")
    values: dict[str, dict[str, Values]] = {column: {} for column in columns}
    for column, by_model in values.items():
        for model in models:
            by_model[model] = np.array([scores[f"{model}/{name}"][column] for name in common])
    vcs = next(column for column in columns if column.startswith("VCS"))
    zeros = {model: int((values[vcs][model] <= 0).sum()) for model in models}
    return _Scored(scores, common, values, vcs, zeros)


def _default_column(scored: _Scored) -> tuple[str, list[str]]:
    """Return the column to rank by if the user names none, and a note if it is not VCS."""
    total = len(scored.common) * len(scored.zeros)
    zeros = sum(scored.zeros.values())
    if 2 * zeros <= total:
        return scored.vcs, []
    margin = scored.vcs.replace("VCS", "margin")
    note = f"{scored.vcs} is 0 for {zeros} of {total} texts, so the models are ranked by {margin}."
    return margin, [note]


def _counts(
    order: Sequence[str],
    scored: _Scored,
    references: Texts,
    models: Mapping[str, Mapping[str, str]],
) -> tuple[dict[str, Counts], dict[str, list[str]]]:
    """Count the texts without a score by model, and list the models without a score by id."""
    counts = {}
    unscored: dict[str, list[str]] = {}
    for model in order:
        failed = missing = 0
        for name in references:
            if f"{model}/{name}" in scored.scores:
                continue
            unscored.setdefault(name, []).append(model)
            if name in models[model]:
                failed += 1
            else:
                missing += 1
        counts[model] = Counts(failed, missing, scored.zeros[model])
    in_order = {name: unscored[name] for name in references if name in unscored}
    return counts, in_order


def _mix(jobs: Sequence[Job], segmenter: ScoringSegmenter | None) -> Mix:
    """Find the segmenter that splits each text and reference; empty without a `segmenter`."""
    if segmenter is None:
        return Mix()
    pairs = [(job, reference) for job in jobs for reference in job.references]
    texts = [(reference, job.generated) for job, reference in pairs]
    names: dict[str, dict[str, str]] = {}
    for (job, reference), name in zip(pairs, segmenters_of(segmenter, texts), strict=True):
        model, _, id_ = job.id.partition("/")
        names.setdefault(model, {})[f"{id_}/{job.references.index(reference)}"] = name or ""
    return Mix.of(names)


def _ranking(
    order: Sequence[str],
    scored: _Scored,
    by: str,
    tests: Sequence[PairedTest],
    options: RankOptions,
) -> Table:
    """Make the table of the models, with the tests between neighbours."""
    others = [column for column in scored.values if column != by]
    rows: list[tuple[Cell, ...]] = []
    for place, (model, test) in enumerate(zip_longest(order, tests), 1):
        values = scored.values[by][model]
        row: list[Cell] = [place, model, float(values.mean())]
        row += mean_interval(values, seed=options.seed).tolist()
        row += test_cells(test)
        row.append(scored.zeros[model])
        row += [float(scored.values[column][model].mean()) for column in others]
        rows.append(tuple(row))
    columns = (
        "rank",
        "model",
        by,
        "low",
        "high",
        *NEXT_COLUMNS,
        "zeros",
        *others,
    )
    corrected = describe_correction(options.correction, len(tests))
    note = (
        "Intervals are 95 % bootstrap intervals over ids. `to the next` is the difference from"
        " the model below, with p-values of a paired bootstrap and a permutation test,"
        f" {corrected}. `zeros` counts the texts whose first VCS is 0."
    )
    return Table(
        "ranking",
        f"Models by {by}; p-values {corrected}",
        columns,
        rows,
        note,
        ("to the next low", "to the next high", "p bootstrap"),
    )


def _agreement(ranking: Sequence[str], values: Mapping[str, Mapping[str, Values]]) -> Table:
    theirs = -np.arange(len(ranking), dtype=np.float64)
    rows: list[tuple[Cell, ...]] = []
    for column, by_model in values.items():
        ours = np.array([by_model[model].mean() for model in ranking])
        tau, rho = statistics.kendall(ours, theirs), statistics.spearman(ours, theirs)
        rows.append((column, len(ranking), tau, rho))
    columns = ("metric", "models", "Kendall tau-b", "Spearman rho")
    return Table("agreement", "Agreement with the ranking to compare with", columns, rows)
