"""Ranks models by how well they describe, and tests whether the differences are chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.metrics.scoring import Job, Metrics
from vcs_experiments.results import Output, Results, run_jobs
from vcs_runtime.comparing import tables as comparison_tables
from vcs_runtime.comparing.statistics import Values
from vcs_runtime.comparing.systems import (
    Counts,
    PairedTest,
    Significance,
    compare_systems,
    enough_resamples,
    paired_tests,
)
from vcs_runtime.comparing.tables import Cell, Table, describe_correction, test_cells
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.bootstrap import SEED, mean_interval
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
            raise InputError(f"{path}: model {path.stem} is there twice")
        texts = read_descriptions(path, problems, predictions=True)
        models[path.stem] = {
            name: text
            for name, text in texts.items()
            if name in references and isinstance(text, str)
        }
        for name in sorted(references.keys() - texts.keys()):
            problems.add(f"{path}: no prediction for {name}")
        if rest := sorted(texts.keys() - models[path.stem].keys()):
            problems.add(
                f"{path}: {rest[0]}: no reference, or not one text: left out ({len(rest)} of them)"
            )
    return models


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
            problems.add(f"{path}: {line}: no such model in the predictions")
    ranking = [known[line.lower()] for line in lines if line.lower() in known]
    if len(set(ranking)) != len(ranking):
        raise InputError(f"{path}: a model is there twice")
    if len(ranking) < 2:
        raise InputError(f"{path}: fewer than two of the models are in it")
    return ranking


def run(
    references: Texts,
    models: Mapping[str, Mapping[str, str]],
    metrics: Metrics,
    by: str | None,
    out: Output,
    problems: Problems,
    *,
    ranking: Sequence[str] = (),
    baseline: str | None = None,
    all_pairs: bool = False,
    correction: str = "holm",
    resamples: int | None = None,
    seed: int = SEED,
    segmenter: ScoringSegmenter | None = None,
) -> Results:
    """Score all models, and rank them by a mean score.

    Means are over the ids that every model has a score for. Otherwise a model would gain by leaving
    out the hard ones. `by` None is the first VCS, or its margin if VCS is 0 for most texts. Without
    a `segmenter` the results do not say what split the texts.
    """
    jobs = [
        Job(
            f"{model}/{name}",
            (text,) if isinstance(text, str) else tuple(text),
            models[model][name],
        )
        for model in models
        for name, text in references.items()
        if name in models[model]
    ]
    scores = run_jobs(jobs, metrics, out, problems, keys=("model", "id"))
    common = [name for name in references if all(f"{model}/{name}" in scores for model in models)]
    if not common:
        raise InputError("no id that every model has a score for: nothing to rank by")
    values = {
        column: {m: np.array([scores[f"{m}/{name}"][column] for name in common]) for m in models}
        for column in metrics.columns
    }
    vcs = next(column for column in metrics.columns if column.startswith("VCS"))
    zeros = {model: int((values[vcs][model] <= 0).sum()) for model in models}
    notes = []
    if by is None:
        total = len(common) * len(models)
        by = vcs
        if 2 * sum(zeros.values()) > total:
            by = vcs.replace("VCS", "margin")
            notes = [
                f"{vcs} is 0 for {sum(zeros.values())} of {total} texts, so the models are ranked"
                f" by {by}."
            ]
    mix = _mix([job for job in jobs if job.id.partition("/")[2] in common], segmenter)
    notes += mix.sentences(dict.fromkeys(models, metrics.signature))
    order = sorted(models, key=lambda model: (-values[by][model].mean(), model))
    number = len(order) * (len(order) - 1) // 2 if all_pairs else len(order) - 1
    resamples = resamples or enough_resamples(number, correction)
    own = {by: values[by]}
    tests = paired_tests(
        own, list(pairwise(order)), resamples=resamples, correction=correction, seed=seed
    )
    tables = [_ranking(order, values, zeros, by, tests, correction, seed)]
    if baseline or all_pairs:
        left_out = {
            name: [model for model in order if f"{model}/{name}" not in scores]
            for name in references
        }
        counts = {
            model: Counts(
                sum(
                    model in without and name in models[model] for name, without in left_out.items()
                ),
                sum(name not in models[model] for name in references),
                zeros[model],
            )
            for model in order
        }
        comparison = compare_systems(
            own,
            counts,
            dict.fromkeys(order, metrics.signature),
            baseline or order[0],
            Significance(
                correction=correction, all_pairs=all_pairs, resamples=resamples, seed=seed
            ),
        )
        comparison = replace(comparison, mix=mix)
        comparison.left_out.update((name, without) for name, without in left_out.items() if without)
        tables += comparison_tables.tables(comparison)
        write_whole(out.folder / "comparison.tex", comparison_tables.latex(comparison))
    if ranking:
        tables.append(_agreement(ranking, values))
    totals = {
        "models": len(models),
        "pairs": len(jobs),
        "scored": len(scores),
        "ids of all models": len(common),
    }
    options = {"by": by, "correction": correction, "resamples": resamples, "seed": seed}
    return Results("rank", metrics.signature, options, totals, problems.messages, notes, tables)


def _mix(jobs: Sequence[Job], segmenter: ScoringSegmenter | None) -> Mix:
    """Find the segmenter that splits each text and reference; empty without a `segmenter`."""
    if segmenter is None:
        return Mix()
    pairs = [(job, reference) for job in jobs for reference in job.references]
    found = segmenters_of(segmenter, ((reference, job.generated) for job, reference in pairs))
    names: dict[str, dict[str, str]] = {}
    for (job, reference), name in zip(pairs, found, strict=True):
        model, _, id_ = job.id.partition("/")
        names.setdefault(model, {})[f"{id_}/{job.references.index(reference)}"] = name or ""
    return Mix.of(names)


def _ranking(
    order: Sequence[str],
    values: Mapping[str, Mapping[str, Values]],
    zeros: Mapping[str, int],
    by: str,
    tests: Sequence[PairedTest],
    correction: str,
    seed: int,
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for place, (model, test) in enumerate(zip_longest(order, tests), 1):
        mine = values[by][model]
        row: list[Cell] = [
            place,
            model,
            float(mine.mean()),
            *mean_interval(mine, seed=seed).tolist(),
        ]
        row += test_cells(test) if test else [None] * 5
        rows.append(
            (
                *row,
                zeros[model],
                *(float(values[column][model].mean()) for column in values if column != by),
            )
        )
    others = (column for column in values if column != by)
    columns = (
        "rank",
        "model",
        by,
        "low",
        "high",
        "to the next",
        "to the next low",
        "to the next high",
        "p bootstrap",
        "p permutation",
        "zeros",
        *others,
    )
    corrected = describe_correction(correction, len(tests))
    note = (
        "Intervals are 95 % bootstrap intervals over ids; `to the next` is the difference to the"
        " model below, with the p-values of a paired bootstrap and a permutation test,"
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
        rows.append(
            (
                column,
                len(ranking),
                statistics.kendall(ours, theirs),
                statistics.spearman(ours, theirs),
            )
        )
    columns = ("metric", "models", "Kendall tau-b", "Spearman rho")
    return Table("agreement", "Agreement with the ranking that was given", columns, rows)
