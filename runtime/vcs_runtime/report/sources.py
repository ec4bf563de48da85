"""Sources of a report: pairs that are explained, or score files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest, nsmallest
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.pairs import InputPair, PairSource, read_pairs
from vcs_runtime.jobs.score_files import check_signatures, options_of, read_scores
from vcs_runtime.report.html import HtmlReport
from vcs_runtime.report.pdf import write_pdf
from vcs_runtime.report.systems import RANKING, Systems
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.scoring.verdicts import Thresholds

Advance = Callable[[int], None]
#: Difference of a pair's scores between two runs. On a GPU it depends on the batch.
_ROUNDING = 1e-3


def report_pair(
    scorer: Scorer,
    pair: InputPair,
    path: Path,
    title: str,
    options: Options,
    thresholds: Thresholds,
    names: tuple[str, Sequence[str]] = ("", ()),
    dated: str = "",
) -> None:
    """Explain one pair in an HTML or PDF file. Raises TextError if the pair cannot be scored."""
    [[(_, result, evidence)]] = scorer.stream(iter([pair]), attrgetter("texts"), options)
    if evidence is None:
        raise TextError(result.error)
    explanation = explain(result, evidence, options.params, thresholds)
    if path.suffix.lower() == ".pdf":
        generated, references = names
        reference = references[result.reference_index] if references else ""
        write_pdf(explanation, path, title, (generated, reference), dated)
        return
    with HtmlReport(path, title) as report:
        report.add(explanation, pair=pair)
        report.finish()


def report_pairs(
    scorer: Scorer,
    pairs: Iterable[InputPair],
    report: HtmlReport,
    name: str,
    options: Options,
    thresholds: Thresholds,
    advance: Advance = lambda count: None,
) -> Systems:
    """Explain every pair, and add a page for each to `report`."""
    systems = Systems()
    systems.begin(name, scorer.signature_for(options))
    for pair, result, evidence in chain.from_iterable(
        scorer.stream(pairs, attrgetter("texts"), options)
    ):
        explanation = evidence and explain(result, evidence, options.params, thresholds)
        page = None
        if explanation:
            page = report.add(explanation, str(pair.name), system=name, pair=pair)
        systems.add(pair.name, {**result.to_dict(), **pair.kept}, page, _verdicts(explanation))
        advance(1)
    return systems


def report_scores(
    files: Sequence[Path],
    pairs: Sequence[Path | PairSource],
    scorer: Scorer | None,
    report: HtmlReport,
    options: Options,
    thresholds: Thresholds,
    *,
    names: Sequence[str] = (),
    pages: int = 50,
    advance: Advance = lambda count: None,
    force: bool = False,
) -> Systems:
    """Read score files, one for each system, and add pages for their worst and best pairs.

    `pages` of both kinds, by margin, in equal shares, if the scored `pairs` are given in the order
    of the files. Raises InputError for files of different signatures (without `force`), or scores
    of other pairs.
    """
    if not force:
        check_signatures({path: next(read_scores(path))[1]["signature"] for path in files})
    systems = Systems()
    stems = [path.stem for path in files]
    names = names or [path.stem if stems.count(path.stem) == 1 else str(path) for path in files]
    for number, (name, path) in enumerate(zip(names, files, strict=True)):
        added: dict[Any, tuple[int, set[str]]] = {}
        _, first = next(read_scores(path))
        if scorer:
            own, differs = options_of(path, options, scorer)
            if differs:
                raise InputError(differs)
            extremes = _extremes(path, max(1, pages // len(files)))
            chosen = (pair for pair in read_pairs(pairs[number]) if pair.name in extremes)
            blocks = scorer.stream(chosen, attrgetter("texts"), own)
            for pair, result, evidence in chain.from_iterable(blocks):
                _check_same(result, extremes[pair.name], f"{path}: id {pair.name!r}", pairs[number])
                assert evidence is not None
                explanation = explain(result, evidence, options.params, thresholds)
                page = report.add(explanation, str(pair.name), system=name, pair=pair)
                added[pair.name] = page, _verdicts(explanation)
                advance(1)
        systems.begin(name, first["signature"])
        for _, row in read_scores(path):
            systems.add(row["id"], row, *added.get(row["id"], (None,)))
    return systems


def _verdicts(explanation: Explanation | None) -> set[str]:
    """Return the verdicts of all chunks of a pair."""
    sides = (explanation.reference, explanation.generated) if explanation else ()
    return {chunk.verdict for chunk in chain.from_iterable(sides)}


def _extremes(path: Path, count: int) -> dict[Any, Sequence[float]]:
    """Return the scores of `RANKING` of the `count` worst and the `count` best pairs, by id."""
    scored = [
        ([float(row[name]) for name in RANKING], number, row["id"])
        for number, (_, row) in enumerate(read_scores(path))
        if "error" not in row
    ]
    return {
        name: values for values, _, name in (*nsmallest(count, scored), *nlargest(count, scored))
    }


def _check_same(result: Result, wanted: Sequence[float], place: str, pairs: object) -> None:
    """Raise InputError unless the texts in `pairs` have the scores of the score file."""
    values = [getattr(result.scores, name, math.nan) for name in RANKING]
    if not all(abs(value - old) <= _ROUNDING for value, old in zip(values, wanted, strict=True)):
        was, now = (
            ", ".join(
                f"{LABELS[name]} {value:.4f}" for name, value in zip(RANKING, side, strict=True)
            )
            for side in (wanted, values)
        )
        raise InputError(
            f"{place} scored {was}, but its texts in {pairs} score {now}: they are not those that"
            " were scored"
        )
