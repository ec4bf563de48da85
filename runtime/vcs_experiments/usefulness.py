"""Which scores are of use: how often each is 0, which systems it tells apart, what it agrees with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Case, Problems, read_cases
from vcs_experiments.parameters import embed, signature_of
from vcs_experiments.rank import Texts
from vcs_experiments.results import Results
from vcs_numba import Params, Scores
from vcs_runtime.comparing.statistics import holm
from vcs_runtime.comparing.tables import Cell, Table
from vcs_runtime.errors import InputError
from vcs_runtime.scoring.block_scores import align_all
from vcs_runtime.scoring.flags import FlagCounts
from vcs_runtime.scoring.result import merit
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.scoring.scorer import Scorer

#: The scores that are measured, and whether they judge order.
SCORES: Final = {"vcs": True, "margin": True, "las": False, "gas": False, "nas": True}
#: A smaller p-value tells two systems apart.
LEVEL: Final = 0.05

Setting = tuple[int, float]
Rows = npt.NDArray[Any]


@dataclass(frozen=True)
class _Scored:
    """Pairs with their scores."""

    cases: list[Case]
    rows: dict[Setting, Rows]  # (pairs,) records of `vcs_numba.SCORE_DTYPE`, by chunk size and LCT
    counts: dict[int, npt.NDArray[np.int64]]  # (pairs, 2) numbers of chunks, by chunk size


def read_labelled(root: Path, problems: Problems) -> list[Case]:
    """Read the rewrites of a folder that are valid or corrupted; InputError unless there are both."""
    labelled = [case for case in read_cases(root, problems) if case.valid is not None]
    if len({case.valid for case in labelled}) < 2:
        raise InputError(f"{root}: the AUC needs rewrites that are valid and others that are not")
    return labelled


def run(
    references: Texts, models: Mapping[str, Mapping[str, str]], labelled: Sequence[Case], scorer: Scorer,
    problems: Problems, *, ranking: Sequence[str] = (), chunk_sizes: Sequence[int], lcts: Sequence[float],
) -> Results:  # fmt: skip
    """Measure each score under each setting.

    Everything but the AUC is over the ids that every system has a score for. Of several references the best
    one counts, as in `vcs-runtime score`: the highest VCS, then the highest margin, then the highest GAS.
    """
    if len(models) < 2:
        raise InputError(f"only one system ({next(iter(models))}): usefulness compares two or more")
    cases = [
        Case(model, name, reference, texts[name])
        for model, texts in models.items()
        for name, several in references.items()
        if name in texts
        for reference in ([several] if isinstance(several, str) else several)
    ]
    scored = _score(cases, scorer, chunk_sizes, lcts, problems)
    places: dict[tuple[str, str], list[int]] = {}
    for index, case in enumerate(scored.cases):
        places.setdefault((case.scene, case.name), []).append(index)
    common = [
        name
        for name, several in references.items()
        if all(
            len(places.get((model, name), ())) == (1 if isinstance(several, str) else len(several))
            for model in models
        )
    ]
    if not common:
        raise InputError("no id that every system has a score for: nothing to compare")
    systems: dict[Setting, Rows] = {}
    flags: dict[Setting, list[FlagCounts]] = {}
    for setting, rows in scored.rows.items():
        best = np.array([[_best(rows, places[model, name]) for name in common] for model in models])
        systems[setting] = rows[best]
        flags[setting] = [_count(rows[own], scored.counts[setting[0]][own]) for own in best]
    rewrites = _score(labelled, scorer, chunk_sizes, lcts, problems)
    names = list(models)
    tables = [_scores(names, systems, flags, ranking, rewrites), _systems(names, systems, flags)]
    counts = {
        "systems": len(models),
        "pairs of systems": len(models) * (len(models) - 1) // 2,
        "ids of all systems": len(common),
        "valid": sum(case.valid is True for case in rewrites.cases),
        "corrupted": sum(case.valid is False for case in rewrites.cases),
    }
    signature = signature_of(scorer, chunk_sizes, lcts)
    return Results("usefulness", signature, {}, counts, problems.messages, tables=tables)


def _score(
    cases: Sequence[Case], scorer: Scorer, chunk_sizes: Sequence[int], lcts: Sequence[float],
    problems: Problems,
) -> _Scored:  # fmt: skip
    """Score pairs under all settings; the similarities of a block are dropped before the next one."""
    kept: list[Case] = []
    rows: dict[Setting, list[Rows]] = {(size, lct): [] for size in chunk_sizes for lct in lcts}
    counts: dict[int, list[tuple[int, ...]]] = {size: [] for size in chunk_sizes}
    for block in embed(cases, scorer, chunk_sizes, problems):
        kept += [item.case for item in block]
        for size in chunk_sizes:
            evidence = [item.evidence[size] for item in block]
            counts[size] += [own.similarity.shape for own in evidence]
            for lct in lcts:
                rows[size, lct].append(align_all(evidence, Params(lct=lct)))
    return _Scored(
        kept,
        {setting: np.concatenate(blocks) for setting, blocks in rows.items() if blocks},
        {size: np.array(own, np.int64).reshape(-1, 2) for size, own in counts.items()},
    )


def _best(rows: Rows, indices: Sequence[int]) -> int:
    """Find the best reference of a text."""
    return max(indices, key=lambda i: merit(Scores._make(rows[i])))


def _count(rows: Rows, counts: npt.NDArray[np.int64]) -> FlagCounts:
    """Count the zeros, and the pairs whose order could not be judged."""
    flags = FlagCounts()
    for row, (n_ref, n_gen) in zip(rows.tolist(), counts.tolist(), strict=True):
        flags.add(dict(zip(rows.dtype.names or (), row, strict=True)), n_ref, n_gen)
    return flags


def _scores(
    names: Sequence[str], systems: Mapping[Setting, Rows], flags: Mapping[Setting, Sequence[FlagCounts]],
    ranking: Sequence[str], rewrites: _Scored,
) -> Table:  # fmt: skip
    ranked, places = [names.index(name) for name in ranking], -np.arange(len(ranking), dtype=np.float64)
    valid = np.array([case.valid is True for case in rewrites.cases])
    columns: tuple[str, ...] = ("score", "chunk size", "LCT", "zero", "not judged", "told apart", "with Holm")
    columns += ("Kendall tau-b", "Spearman rho") if ranking else ()
    columns += ("AUC",) if rewrites.cases else ()
    rows: list[tuple[Cell, ...]] = []
    for score, order in SCORES.items():
        for setting, where in _distinct(score, [systems, rewrites.rows]):
            values = systems[setting][score]
            unjudged = sum(own.not_judged for own in flags[setting])
            p = np.array([statistics.wilcoxon(a, b) for a, b in combinations(values, 2)])
            row: list[Cell] = [LABELS[score], *where]
            row += [float((values == 0).mean()), unjudged / values.size if order else None]
            row += [int((p < LEVEL).sum()), int((holm(p) < LEVEL).sum())]
            if ranking:
                means = values.mean(axis=1)[ranked]
                row += [statistics.kendall(means, places), statistics.spearman(means, places)]
            if rewrites.cases:
                row.append(statistics.classification(rewrites.rows[setting][score], valid)["AUC"])
            rows.append(tuple(row))
    note = (
        "Zero: the share of texts whose score is exactly 0. Not judged: the share whose order cannot be "
        f"judged. Told apart: pairs of systems with p < {LEVEL:g} (Wilcoxon signed-rank over ids), of "
        f"{len(names) * (len(names) - 1) // 2}; with Holm: with Holm's correction. A score that "
        "several settings leave equal has one row. A score that tells systems apart need not be valid."
    )
    return Table("scores", "Which scores are of use", columns, rows, note)


def _distinct(
    score: str, tables: Sequence[Mapping[Setting, Rows]]
) -> list[tuple[Setting, tuple[Cell, Cell]]]:
    """List the settings under which a score differs, with the cells that name them ("all": equal)."""
    settings = list(tables[0])

    def equal(chosen: Sequence[Setting]) -> bool:
        return all(
            np.array_equal(table[setting][score], table[chosen[0]][score])
            for table in tables
            for setting in (chosen if table else ())
        )

    if equal(settings):
        return [(settings[0], ("all", "all"))]
    found: list[tuple[Setting, tuple[Cell, Cell]]] = []
    for size in dict.fromkeys(size for size, _ in settings):
        own = [setting for setting in settings if setting[0] == size]
        found += [(own[0], (size, "all"))] if equal(own) else [(s, (size, s[1])) for s in own]
    return found


def _systems(
    names: Sequence[str], systems: Mapping[Setting, Rows], flags: Mapping[Setting, Sequence[FlagCounts]]
) -> Table:
    (size, lct), values = next(iter(systems.items()))
    own = flags[size, lct]
    rows: list[tuple[Cell, ...]] = [
        (name, float(row["vcs"].mean()), float(row["margin"].mean()), count.zeros, count.not_judged)
        for name, row, count in zip(names, values, own, strict=True)
    ]
    rows.sort(key=lambda row: (-float(row[2] or 0), str(row[0])))
    columns = ("system", "mean VCS", "mean margin", "zeros", "not judged")
    note = f"By mean margin, at chunk size {size} and LCT {lct:g}, over {values.shape[1]} ids."
    return Table("systems", "Systems", columns, rows, note)
