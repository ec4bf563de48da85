"""What a report is made from: pairs that are explained, or lines of score files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest, nsmallest
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.pairs import InputPair, read_pairs
from vcs_runtime.jobs.score_files import read_scores
from vcs_runtime.report.html import HtmlReport
from vcs_runtime.report.systems import Systems
from vcs_runtime.scoring.explanation import Thresholds, explain
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer

Advance = Callable[[int], None]


def report_pairs(
    scorer: Scorer, pairs: Iterable[InputPair], report: HtmlReport | None, name: str, options: Options,
    thresholds: Thresholds, advance: Advance = lambda count: None,
) -> Systems:  # fmt: skip
    """Explain every pair, give each a page of `report`, and return what is to be said of all."""
    systems = Systems()
    systems.begin(name, scorer.signature_for(options))
    for pair, result, evidence in chain.from_iterable(scorer.stream(pairs, attrgetter("texts"), options)):
        explanation = evidence and explain(result, evidence, options.params, thresholds)
        page = report.add(explanation, str(pair.name)) if report and explanation else None
        systems.add(pair.name, result.to_dict(), page)
        advance(1)
    return systems


def report_scores(
    files: Sequence[Path], pairs: Sequence[Path], scorer: Scorer | None, report: HtmlReport | None,
    options: Options, thresholds: Thresholds, *, pages: int = 50, advance: Advance = lambda count: None,
) -> Systems:  # fmt: skip
    """Read score files, one a system. With `pairs`, a file for each, explain the worst and best `pages`.

    Raises InputError: unreadable files, or scores of another signature than the scorer's.
    """
    systems = Systems()
    names = [path.stem for path in files]
    for number, path in enumerate(files):
        name = path.stem if names.count(path.stem) == 1 else str(path)
        made: dict[Any, int] = {}
        _, first = next(read_scores(path))
        if scorer and report:
            ours = scorer.signature_for(options)
            if first["signature"] != ours:
                raise InputError(
                    f"{path}: scored as {first['signature']}, this run is {ours}: give the same options"
                )
            wanted = _extremes(path, pages)
            chosen = (pair for pair in read_pairs(pairs[number]) if pair.name in wanted)
            blocks = scorer.stream(chosen, attrgetter("texts"), options)
            for pair, result, evidence in chain.from_iterable(blocks):
                if evidence is None or result.vcs != wanted[pair.name]:
                    raise InputError(
                        f"{path}: id {pair.name!r} scored {wanted[pair.name]}, but its texts in "
                        f"{pairs[number]} score {result.vcs}: they are not those that were scored"
                    )
                title = f"{name}: {pair.name}" if len(files) > 1 else str(pair.name)
                made[pair.name] = report.add(explain(result, evidence, options.params, thresholds), title)
                advance(1)
        systems.begin(name, first["signature"])
        for _, row in read_scores(path):
            systems.add(row["id"], row, made.get(row["id"]))
    return systems


def _extremes(path: Path, count: int) -> dict[Any, float]:
    """The ids of the pairs that scored lowest and highest, with their VCS."""
    scored = [
        (float(row["vcs"]), number, row["id"])
        for number, (_, row) in enumerate(read_scores(path))
        if "error" not in row
    ]
    return {name: vcs for vcs, _, name in (*nsmallest(count, scored), *nlargest(count, scored))}
