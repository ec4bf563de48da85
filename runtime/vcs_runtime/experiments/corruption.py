"""Does a metric tell valid rewrites of a description from corrupted ones? (papers, Table 1)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcs_runtime.experiments import statistics
from vcs_runtime.experiments.agreement import Found, agreement
from vcs_runtime.experiments.datasets import TABLE_1_INVALID, Case, Problems
from vcs_runtime.experiments.plots import plot_all
from vcs_runtime.experiments.results import Cell, Results, Table, means_table
from vcs_runtime.experiments.running import Output, run_jobs
from vcs_runtime.experiments.scoring import Job, Metrics


def run(
    cases: Sequence[Case],
    published: Found,
    metrics: Metrics,
    out: Output,
    problems: Problems,
    *,
    threshold: float = 0.5,
    plots: str | None = None,
) -> Results:
    """Score every case, and write pairs.csv, the tables and results.json into `out`.

    threshold  a score from here on says "valid"
    plots      a column of `metrics`, of which plots are drawn into `out`; None: no plots
    """
    jobs = [Job(case.id, (case.reference,), case.generated) for case in cases]
    found = run_jobs(jobs, metrics, out, problems)
    scored = [case for case in cases if case.id in found]
    for name in sorted(published.keys() - {case.id for case in cases}):
        problems.add(f"{name}: published, but there is no such text here")
    for name in sorted(
        {case.id for case in scored if not case.series} - published.keys() if published else ()
    ):
        problems.add(f"{name}: no published score")
    counts = {"pairs": len(jobs), "scored": len(scored), "scenes": len({case.scene for case in cases})}
    results = Results("corruption", metrics.signature, {"threshold": threshold}, counts, problems.found)
    results.tables += tables(scored, found, published, metrics, threshold)
    results.write(out.folder)
    if plots:
        plot_all(scored, found, published, plots, out.folder)
    return results


def tables(
    cases: Sequence[Case], found: Found, published: Found, metrics: Metrics, threshold: float = 0.5
) -> list[Table]:
    """The experiment's tables, of the cases that have scores."""
    single = [case for case in cases if not case.series]
    series = [(case.series, case) for case in cases if case.series]
    kept = []
    if single:
        groups: dict[tuple[Cell, ...], list[Mapping[str, float]]] = {}
        for case in single:
            groups.setdefault((case.name, _word(case.valid)), []).append(found[case.id])
        kept.append(
            means_table("cases", "Mean and standard deviation by case", groups, ("case", "valid"), metrics)
        )
        kept.append(_classification(single, found, metrics, threshold))
    if series:
        groups = {}
        for place, case in series:
            groups.setdefault(place, []).append(found[case.id])
        keys = ("kind", "position", "level")
        kept.append(
            means_table(
                "series", "Graded series: mean and standard deviation by level", groups, keys, metrics
            )
        )
    if published:
        kept += agreement({case.id: case.name for case in single}, found, published, metrics, "case")
    return kept


def _classification(cases: Sequence[Case], found: Found, metrics: Metrics, threshold: float) -> Table:
    said = [case for case in cases if case.valid is not None]
    table_1 = [case for case in said if case.valid or case.name in TABLE_1_INVALID]
    rows: list[tuple[Cell, ...]] = []
    columns: tuple[str, ...] = ()
    for which, chosen in (("all", said), ("of Table 1", table_1)):
        valid = np.array([case.valid is True for case in chosen], np.bool_)
        for metric in metrics.columns if len(chosen) else ():
            values = np.array([found[case.id][metric] for case in chosen])
            measures = statistics.classification(values, valid, threshold)
            columns = ("cases", "metric", *measures)
            rows.append((which, metric, *measures.values()))
    note = (
        f"A text counts as valid from a score of {threshold:g} on. AUC needs no threshold: how often a valid "
        "text scores above an invalid one. Of Table 1: the kinds of rewrite that the papers' table shows."
    )
    return Table("classification", "Valid against invalid", columns, rows, note)


def _word(valid: bool | None) -> str:
    return {True: "valid", False: "invalid", None: "not said"}[valid]
