"""Measures how well a metric separates valid rewrites from corrupted ones (papers, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.agreement import agreement
from vcs_experiments.datasets.published import scenes_of
from vcs_experiments.datasets.texts import TABLE_1_INVALID, Case, Problems, scene_key
from vcs_experiments.metrics.scoring import Job, Metrics, ScoresById
from vcs_experiments.plots import plot_all
from vcs_experiments.results import Output, Results, means_latex, means_table, run_jobs
from vcs_runtime.comparing.latex import Heading
from vcs_runtime.comparing.tables import Cell, Table

_NAMED = 5  # scenes that one line names
_GROUPS = {
    "valid": "Valid test cases",
    "invalid": "Invalid test cases",
    "not said": "Other test cases",
}


def run(
    cases: Sequence[Case],
    published: ScoresById,
    metrics: Metrics,
    out: Output,
    problems: Problems,
    *,
    threshold: float = 0.5,
    plots: str | None = None,
) -> Results:
    """Score every case, and draw plots of the column `plots`."""
    jobs = [Job(case.id, (case.reference,), case.generated) for case in cases]
    scores = run_jobs(jobs, metrics, out, problems)
    scored = [case for case in cases if case.id in scores]
    scenes = {case.scene for case in cases}
    elsewhere = scenes_of(published) - scenes
    if elsewhere:
        named = ", ".join(sorted(elsewhere, key=scene_key)[:_NAMED])
        if len(elsewhere) > _NAMED:
            named += ", ..."
        problems.add(f"published scenes without texts here: {len(elsewhere)} ({named})")
    for name in sorted(published.keys() - {case.id for case in cases}):
        if name.partition("/")[0] in scenes:
            problems.add(f"{name} has published scores, but no text here")
    counts = {"pairs": len(jobs), "scored": len(scored), "scenes": len(scenes)}
    if published:
        single = {case.id for case in scored if not case.series}
        for name in sorted(single - published.keys()):
            problems.add(f"{name}: no published score")
        counts["published scenes"] = len(scenes & scenes_of(published))
    results = Results(
        "corruption", metrics.signature, {"threshold": threshold}, counts, problems.messages
    )
    results.tables += tables(scored, scores, published, metrics, threshold)
    if results.tables and results.tables[0].name == "cases":
        means = results.tables[0]
        keys = [Heading(_GROUPS[str(valid)], str(name)) for name, valid, *_ in means.rows]
        caption = "Rewrites that tell the same story, and corruptions of it."
        results.latex["cases"] = means_latex(means, keys, metrics, caption)
    if plots:
        plot_all(scored, scores, published, plots, out.folder)
    return results


def tables(
    cases: Sequence[Case],
    scores: ScoresById,
    published: ScoresById,
    metrics: Metrics,
    threshold: float = 0.5,
) -> list[Table]:
    """Make the tables of the experiment, from the cases that have scores."""
    single = [case for case in cases if not case.series]
    by_case: dict[tuple[Cell, ...], list[Mapping[str, float]]] = {}
    by_level: dict[tuple[Cell, ...], list[Mapping[str, float]]] = {}
    for case in cases:
        if case.series:
            by_level.setdefault(case.series, []).append(scores[case.id])
        else:
            by_case.setdefault((case.name, _word(case.valid)), []).append(scores[case.id])
    listed = []
    if single:
        listed.append(
            means_table(
                "cases", "Mean and standard deviation by case", by_case, ("case", "valid"), metrics
            )
        )
        listed.append(_classification(single, scores, metrics, threshold))
    if by_level:
        keys = ("kind", "position", "level")
        listed.append(
            means_table(
                "series",
                "Graded series: mean and standard deviation by level",
                by_level,
                keys,
                metrics,
            )
        )
    if published:
        names = {case.id: case.name for case in single}
        listed += agreement(names, scores, published, metrics, "case")
    return listed


def _classification(
    cases: Sequence[Case], scores: ScoresById, metrics: Metrics, threshold: float
) -> Table:
    labelled = [case for case in cases if case.valid is not None]
    table_1 = [case for case in labelled if case.valid or case.name in TABLE_1_INVALID]
    rows: list[tuple[Cell, ...]] = []
    columns: tuple[str, ...] = ()
    for which, chosen in (("all", labelled), ("of Table 1", table_1)):
        valid = np.array([case.valid is True for case in chosen], np.bool_)
        for metric in metrics.columns if len(chosen) else ():
            values = np.array([scores[case.id][metric] for case in chosen])
            measures = statistics.classification(values, valid, threshold)
            columns = ("cases", "metric", *measures)
            rows.append((which, metric, *measures.values()))
    note = (
        f"A text counts as valid if its score is at least {threshold:g}. AUC needs no threshold:"
        ' it is how often a valid text scores above an invalid one. "Of Table 1" means the kinds'
        " of rewrite in the papers' table."
    )
    return Table("classification", "Valid against invalid", columns, rows, note)


def _word(valid: bool | None) -> str:
    return {True: "valid", False: "invalid", None: "not said"}[valid]
