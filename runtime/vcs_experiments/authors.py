"""Agreement of a metric across authors who described the same scene (papers, Table 3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from operator import itemgetter

from vcs_experiments.agreement import agreement
from vcs_experiments.datasets.published import scenes_of
from vcs_experiments.datasets.texts import Problems
from vcs_experiments.metrics.scoring import Job, Metrics, ScoresById
from vcs_experiments.results import Output, Results, means_latex, means_table, run_jobs
from vcs_runtime.comparing.latex import Heading
from vcs_runtime.comparing.tables import Cell, Table

# The papers say of VCS alone that all of its means are above this.
CONSISTENT = 0.8


def run(
    texts: Mapping[str, Mapping[str, str]],
    published: ScoresById,
    metrics: Metrics,
    out: Output,
    problems: Problems,
) -> Results:
    """Score every ordered pair of authors. In "A1-A2", A1 wrote the reference."""
    jobs = []
    for scene, by_author in texts.items():
        for first, second in permutations(by_author, 2):
            job = Job(f"{scene}/{first}-{second}", (by_author[first],), by_author[second])
            jobs.append(job)
    scores = run_jobs(jobs, metrics, out, problems)
    pairs = {name: name.rsplit("/", 1)[1] for name in scores}  # of authors, by id
    pairs = dict(sorted(pairs.items(), key=itemgetter(1)))
    groups: dict[tuple[Cell, ...], list[Mapping[str, float]]] = {}
    for name, authors in pairs.items():
        groups.setdefault((authors,), []).append(scores[name])
    counts = {"pairs": len(jobs), "scored": len(scores), "scenes": len(texts)}
    if published:
        counts["published scenes"] = len(texts.keys() & scenes_of(published))
    title = (
        "Mean and standard deviation by pair of authors. The first author's text is the reference"
    )
    means = means_table("authors", title, groups, ("authors",), metrics)
    keys = [
        Heading(f"Reference by {str(row[0]).partition('-')[0]}", str(row[0])) for row in means.rows
    ]
    caption = (
        "Scores of pairs of authors who described the same scenes. The first author's text is the"
        " reference."
    )
    latex = {"authors": means_latex(means, keys, metrics, caption)} if means.rows else {}
    tables = [means, _consistency(means, metrics)]
    if published:
        tables += agreement(pairs, scores, published, metrics, "authors")
    return Results(
        "authors", metrics.signature, {}, counts, problems.messages, tables=tables, latex=latex
    )


def _consistency(means: Table, metrics: Metrics) -> Table:
    """Count the pairs of authors whose mean is too low for texts that tell the same story."""
    rows: list[tuple[Cell, ...]] = []
    for metric in metrics.columns if means.rows else ():
        values = [float(row[means.columns.index(metric)] or 0) for row in means.rows]
        below = sum(value <= CONSISTENT for value in values)
        rows.append((metric, len(values), min(values), max(values), below))
    columns = ("metric", "pairs", "lowest mean", "highest mean", f"not above {CONSISTENT:g}")
    return Table("consistency", "Lowest and highest mean of a pair of authors", columns, rows)
