"""What chunk size and tolerance do: embedded once, aligned under every setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from vcs_numba import Params
from vcs_runtime.experiments import statistics
from vcs_runtime.experiments.datasets import Case, Problems
from vcs_runtime.experiments.results import Cell, Results, Table
from vcs_runtime.experiments.scoring import realign
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.progress import progress_bar

_BLOCK = 64


def run(
    cases: Sequence[Case],
    published: Mapping[str, Mapping[str, float]],
    scorer: Scorer,
    out: Path,
    problems: Problems,
    *,
    chunk_sizes: Sequence[int],
    lcts: Sequence[float],
    threshold: float = 0.5,
    log: Callable[[str], None] = lambda message: None,
) -> Results:
    """The measures of the corruption experiment for each chunk size and LCT, written into `out`.

    log  hears how long embedding and aligning took
    """
    started = time.perf_counter()
    kept, evidence = _embed(cases, scorer, chunk_sizes, problems)
    embedded = time.perf_counter()
    scores = {
        (chunk_size, lct): realign(evidence[chunk_size], Params(lct=lct))["vcs"]
        for chunk_size in chunk_sizes
        for lct in lcts
    }
    aligned = time.perf_counter() - embedded
    log(
        f"{len(kept)} pairs: cut and embedded in {embedded - started:.1f} s, aligned under {len(scores)} "
        f"settings in {aligned:.2f} s, {1000 * aligned / len(scores):.0f} ms each"
    )
    counts = {"pairs": len(cases), "scored": len(kept), "settings": len(scores)}
    tables = [_settings(kept, scores, published, threshold), _cases(kept, scores)]
    options = {"threshold": threshold}
    settings = f"chunks:{','.join(map(str, chunk_sizes))}|lcts:{','.join(f'{lct:g}' for lct in lcts)}"
    line = f"{scorer.signature_for(Options(chunk_sizes[0]))}|{settings}"
    results = Results("parameters", line, options, counts, problems.found, tables=tables)
    results.write(out)
    return results


def _embed(
    cases: Sequence[Case], scorer: Scorer, chunk_sizes: Sequence[int], problems: Problems
) -> tuple[list[Case], dict[int, list[Evidence]]]:
    """The cases that can be scored at every chunk size, and what alignment needs of each."""
    kept: list[Case] = []
    found: dict[int, list[Evidence]] = {chunk_size: [] for chunk_size in chunk_sizes}
    with progress_bar(len(cases), "embedding", "texts") as advance:
        for start in range(0, len(cases), _BLOCK):
            block = cases[start : start + _BLOCK]
            pairs = [(case.reference, case.generated) for case in block]
            # A block at every chunk size before the next block: the scorer cuts and embeds its texts once.
            sizes = [scorer.iter_evidence(pairs, Options(chunk_size)) for chunk_size in chunk_sizes]
            for case, *results in zip(block, *sizes, strict=True):
                good = [evidence for _, evidence in results if evidence is not None]
                if len(good) < len(results):
                    error = next(result.error for result, _ in results if result.error)
                    problems.add(f"{case.id}: {error}: not scored")
                    continue
                kept.append(case)
                for chunk_size, evidence in zip(chunk_sizes, good, strict=True):
                    found[chunk_size].append(evidence)
            advance(len(block))
    return kept, found


Scores = Mapping[tuple[int, float], statistics.Values]


def _settings(
    cases: Sequence[Case], scores: Scores, published: Mapping[str, Mapping[str, float]], threshold: float
) -> Table:  # fmt: skip
    said = np.array([case.valid is not None for case in cases])
    valid = np.array([case.valid is True for case in cases])
    references = sorted({metric for of in published.values() for metric in of if metric.startswith("VCS")})
    rows: list[tuple[Cell, ...]] = []
    columns: tuple[str, ...] = ("chunk size", "LCT")
    for (chunk_size, lct), values in scores.items():
        row: list[Cell] = [chunk_size, lct]
        if said.any():
            good, bad = values[said & valid], values[said & ~valid]
            measures = statistics.classification(values[said], valid[said], threshold)
            row += [float(part.mean()) if len(part) else None for part in (good, bad)]
            row += list(measures.values())
            columns = ("chunk size", "LCT", "mean valid", "mean invalid", *measures)
        for metric in references:
            both = [(value, published[c.id][metric]) for value, c in zip(values, cases, strict=True)
                    if metric in published.get(c.id, ())]  # fmt: skip
            row.append(statistics.spearman(*np.array(both).T))
        rows.append(tuple(row))
    columns += tuple(f"Spearman with published {metric}" for metric in references)
    note = f"A text counts as valid from a VCS of {threshold:g} on."
    return Table("settings", "VCS by chunk size and LCT", columns, rows, note)


def _cases(cases: Sequence[Case], scores: Scores) -> Table:
    names = list(dict.fromkeys(case.name for case in cases))
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        chosen = np.array([case.name == name for case in cases])
        rows.append((name, *(float(values[chosen].mean()) for values in scores.values())))
    columns = ("case", *(f"chunk {size}, LCT {lct:g}" for size, lct in scores))
    return Table("cases", "Mean VCS by case and setting", columns, rows)
