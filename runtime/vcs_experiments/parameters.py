"""The effect of chunk size and tolerance; texts are embedded once and aligned per setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Case, Problems
from vcs_experiments.metrics.scoring import ScoresById, tolerances
from vcs_experiments.results import Results
from vcs_numba import Params
from vcs_runtime.comparing.statistics import Values
from vcs_runtime.comparing.tables import Cell, Table
from vcs_runtime.scoring.block_scores import align_all
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.progress import progress_bar

_BLOCK = 64


@dataclass(frozen=True)
class Embedded:
    """A case, with the evidence for its alignment by chunk size."""

    case: Case
    evidence: dict[int, Evidence] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str]:
        """The reference and the generated text."""
        return self.case.reference, self.case.generated


def embed(
    cases: Sequence[Case], scorer: Scorer, chunk_sizes: Sequence[int], problems: Problems
) -> Iterator[list[Embedded]]:
    """Embed cases block by block; yield the cases that every chunk size can score, in order."""
    with progress_bar(len(cases), "embedding", "texts") as advance:
        for start in range(0, len(cases), _BLOCK):
            block = [Embedded(case) for case in cases[start : start + _BLOCK]]
            errors: dict[int, str] = {}
            # A block at every chunk size before the next block: the scorer splits and embeds its
            # texts once.
            for chunk_size in chunk_sizes:
                stream = scorer.stream(block, attrgetter("pair"), Options(chunk_size))
                for item, result, evidence in chain.from_iterable(stream):
                    if evidence is None:
                        errors.setdefault(id(item), str(result.error))
                    else:
                        item.evidence[chunk_size] = evidence
            for item in block:
                if id(item) in errors:
                    problems.add(f"{item.case.id}: {errors[id(item)]}: not scored")
            yield [item for item in block if id(item) not in errors]
            advance(len(block))


@dataclass(frozen=True)
class Settings:
    """The settings that are tried, each chunk size with each LCT."""

    chunk_sizes: Sequence[int]
    lcts: Sequence[float]
    threshold: float = 0.5  # lowest VCS of a text that is classified as valid

    def signature(self, scorer: Scorer) -> str:
        """Return the signature of results under all settings."""
        sizes = ",".join(map(str, self.chunk_sizes))
        first = scorer.signature_for(Options(self.chunk_sizes[0]))
        return f"{first}|chunks:{sizes}|{tolerances(self.lcts)}"


def run(
    cases: Sequence[Case],
    published: ScoresById,
    scorer: Scorer,
    problems: Problems,
    settings: Settings,
    log: Callable[[str], None] = lambda message: None,
) -> Results:
    """Repeat the corruption experiment for each chunk size and LCT."""
    started = time.perf_counter()
    embedded = list(chain.from_iterable(embed(cases, scorer, settings.chunk_sizes, problems)))
    embedding = time.perf_counter() - started

    started = time.perf_counter()
    scores: dict[tuple[int, float], Values] = {}
    for chunk_size in settings.chunk_sizes:
        evidence = [item.evidence[chunk_size] for item in embedded]
        for lct in settings.lcts:
            scores[chunk_size, lct] = align_all(evidence, Params(lct=lct))["vcs"]
    aligning = time.perf_counter() - started
    log(
        f"{len(embedded)} pairs: split and embedded in {embedding:.1f} s, aligned with"
        f" {len(scores)} settings in {aligning:.2f} s ({1000 * aligning / len(scores):.0f} ms"
        " each)"
    )

    scored = [item.case for item in embedded]
    counts = {"pairs": len(cases), "scored": len(scored), "settings": len(scores)}
    tables = [_settings(scored, scores, published, settings.threshold), _cases(scored, scores)]
    return Results(
        "parameters",
        settings.signature(scorer),
        {"threshold": settings.threshold},
        counts,
        problems.messages,
        tables=tables,
    )


Scores = Mapping[tuple[int, float], Values]


def _settings(
    cases: Sequence[Case], scores: Scores, published: ScoresById, threshold: float
) -> Table:
    labelled = np.array([case.valid is not None for case in cases])
    valid = np.array([case.valid is True for case in cases])
    names = set().union(*published.values())  # of the published metrics
    references = sorted(name for name in names if name.startswith("VCS"))
    rows: list[tuple[Cell, ...]] = []
    columns: tuple[str, ...] = ("chunk size", "LCT")
    for (chunk_size, lct), values in scores.items():
        row: list[Cell] = [chunk_size, lct]
        if labelled.any():
            good, bad = values[labelled & valid], values[labelled & ~valid]
            measures = statistics.classification(values[labelled], valid[labelled], threshold)
            row.append(float(good.mean()) if len(good) else None)
            row.append(float(bad.mean()) if len(bad) else None)
            row += measures.values()
            columns = ("chunk size", "LCT", "mean valid", "mean invalid", *measures)
        for metric in references:
            ours, theirs = [], []
            for value, case in zip(values, cases, strict=True):
                if metric in published.get(case.id, ()):
                    ours.append(value)
                    theirs.append(published[case.id][metric])
            row.append(statistics.spearman(np.array(ours), np.array(theirs)))
        rows.append(tuple(row))
    columns += tuple(f"Spearman with published {metric}" for metric in references)
    note = f"A text counts as valid if its VCS is at least {threshold:g}."
    return Table("settings", "VCS by chunk size and LCT", columns, rows, note)


def _cases(cases: Sequence[Case], scores: Scores) -> Table:
    names = np.array([case.name for case in cases])
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(names.tolist()):
        means = [float(values[names == name].mean()) for values in scores.values()]
        rows.append((name, *means))
    columns = ("case", *(f"chunk {size}, LCT {lct:g}" for size, lct in scores))
    return Table("cases", "Mean VCS by case and setting", columns, rows)
