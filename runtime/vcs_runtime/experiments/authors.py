"""Does a metric agree across authors who wrote about the same scene? (papers, Table 3)"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

from vcs_runtime.experiments.agreement import Found, agreement
from vcs_runtime.experiments.datasets import Problems
from vcs_runtime.experiments.results import Cell, Results, means_table
from vcs_runtime.experiments.running import Output, run_jobs
from vcs_runtime.experiments.scoring import Job, Metrics


def run(
    texts: Mapping[str, Mapping[str, str]],
    published: Found,
    metrics: Metrics,
    out: Output,
    problems: Problems,
) -> Results:
    """Score every ordered pair of authors, "A1-A2" with A1's text as the reference, and write the results."""
    jobs = [
        Job(f"{scene}/{reference}-{generated}", (by[reference],), by[generated])
        for scene, by in texts.items()
        for reference, generated in permutations(by, 2)
    ]
    found = run_jobs(jobs, metrics, out, problems)
    both = {name: name.rsplit("/", 1)[1] for name in sorted(found, key=lambda name: name.rsplit("/", 1)[1])}
    groups: dict[tuple[Cell, ...], list[Mapping[str, float]]] = {}
    for name, authors in both.items():
        groups.setdefault((authors,), []).append(found[name])
    counts = {"pairs": len(jobs), "scored": len(found), "scenes": len(texts)}
    title = "Mean and standard deviation by ordered pair of authors, the first one's text the reference"
    tables = [means_table("authors", title, groups, ("authors",), metrics)]
    if published:
        tables += agreement(both, found, published, metrics, "authors")
    results = Results("authors", metrics.signature, {}, counts, problems.found, tables=tables)
    results.write(out.folder)
    return results
