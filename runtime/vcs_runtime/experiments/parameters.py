"""What chunk size and tolerance do: embedded once, aligned under every setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from vcs_numba import Params
from vcs_runtime.errors import TextError
from vcs_runtime.experiments import statistics
from vcs_runtime.experiments.layouts import Case, Problems
from vcs_runtime.experiments.matrices import Matrices, Matrix, vcs
from vcs_runtime.experiments.results import Cell, Results, Table
from vcs_runtime.progress import progress_bar

_BLOCK = 64
Cut = tuple[list[str], list[str]]


def run(
    cases: Sequence[Case],
    published: Mapping[str, Mapping[str, float]],
    matrices: Matrices,
    line: str,
    out: Path,
    problems: Problems,
    *,
    chunk_sizes: Sequence[int],
    lcts: Sequence[float],
    threshold: float = 0.5,
    progress: bool = True,
    log: Callable[[str], None] = lambda message: None,
) -> Results:
    """The measures of the corruption experiment for each chunk size and LCT, written into `out`.

    line  the signature's parts that hold for every setting
    log   hears how long embedding and aligning took
    """
    started = time.perf_counter()
    kept, grids = _embed(cases, matrices, chunk_sizes, problems, progress)
    embedded = time.perf_counter()
    scores = {
        (chunk_size, lct): vcs(grids[chunk_size], Params(lct=lct))["vcs"]
        for chunk_size in chunk_sizes
        for lct in lcts
    }
    log(
        f"{len(kept)} pairs: cut and embedded in {embedded - started:.1f} s, "
        f"aligned under {len(scores)} settings in {time.perf_counter() - embedded:.2f} s"
    )
    counts = {"pairs": len(cases), "scored": len(kept), "settings": len(scores)}
    tables = [_settings(kept, scores, published, threshold), _cases(kept, scores)]
    options = {"threshold": threshold}
    results = Results("parameters", line, options, counts, problems.found, tables=tables)
    results.write(out)
    return results


def _embed(
    cases: Sequence[Case], matrices: Matrices, chunk_sizes: Sequence[int], problems: Problems, progress: bool
) -> tuple[list[Case], dict[int, list[Matrix]]]:
    kept: list[Case] = []
    grids: dict[int, list[Matrix]] = {chunk_size: [] for chunk_size in chunk_sizes}
    with progress_bar(len(cases), enabled=progress) as advance:
        for start in range(0, len(cases), _BLOCK):
            block = cases[start : start + _BLOCK]
            cuts = matrices.cut([(case.reference, case.generated) for case in block])
            good = [
                (case, cut) for case, cut in zip(block, cuts, strict=True) if not isinstance(cut, TextError)
            ]
            for case, cut in zip(block, cuts, strict=True):
                if isinstance(cut, TextError):
                    problems.add(f"{case.id}: {cut}: not scored")
            for case, found in _block(good, matrices, chunk_sizes, problems):
                kept.append(case)
                for size, matrix in found.items():
                    grids[size].append(matrix)
            advance(len(block))
    return kept, grids


def _block(
    good: Sequence[tuple[Case, Cut]], matrices: Matrices, chunk_sizes: Sequence[int], problems: Problems
) -> Iterator[tuple[Case, dict[int, Matrix]]]:
    """Each case that the model takes, with its matrix by chunk size."""
    pairs = [(case.reference, case.generated) for case, _ in good]
    try:
        found = matrices.get(pairs, [cut for _, cut in good], chunk_sizes)
    except TextError as error:  # one text that the model refuses must not take the others with it
        if len(good) == 1:
            problems.add(f"{good[0][0].id}: {error}: not scored")
            return
        for single in good:
            yield from _block([single], matrices, chunk_sizes, problems)
        return
    for i, (case, _) in enumerate(good):
        yield case, {size: of_size[i] for size, of_size in found.items()}


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
