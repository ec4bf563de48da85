"""Sources of a report: pairs that are explained, or score files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest, nsmallest
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.pairs import InputPair, PairSource, read_pairs
from vcs_runtime.jobs.score_files import check_signatures, options_of, read_scores
from vcs_runtime.report import figures
from vcs_runtime.report.html import HtmlReport
from vcs_runtime.report.pdf import write_pdf
from vcs_runtime.report.systems import RANKING, Systems
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.scoring.verdicts import Thresholds
from vcs_runtime.util.figures import save_figure

Advance = Callable[[int], None]
#: Difference of a pair's scores between two runs. On a GPU it depends on the batch.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Explainer:
    """A scorer, with the options and the thresholds of its explanations."""

    scorer: Scorer
    options: Options
    thresholds: Thresholds

    def explained(
        self, pairs: Iterable[InputPair]
    ) -> Iterator[tuple[InputPair, Result, Explanation | None]]:
        """Yield each pair with its result and explanation, None if it could not be scored."""
        blocks = self.scorer.stream(pairs, attrgetter("texts"), self.options)
        for pair, result, evidence in chain.from_iterable(blocks):
            if evidence is None:
                yield pair, result, None
            else:
                yield pair, result, explain(result, evidence, self.options.params, self.thresholds)


@dataclass(frozen=True)
class SystemSource:
    """A system of a report: its name, its score file, and the scored pairs if they are known."""

    name: str
    scores: Path
    pairs: Path | PairSource | None = None


def system_sources(
    files: Sequence[Path], pairs: Sequence[Path | PairSource], names: Sequence[str] = ()
) -> list[SystemSource]:
    """Return the sources of systems; their names are the files' names by default.

    `pairs` are in the order of the score files, or empty.
    """
    names = names or _file_names(files)
    known: Sequence[Path | PairSource | None] = pairs or [None] * len(files)
    return [SystemSource(*source) for source in zip(names, files, known, strict=True)]


def _file_names(files: Sequence[Path]) -> list[str]:
    """Return the names of files without suffix, or their paths where several have one name."""
    counts = Counter(path.stem for path in files)
    return [path.stem if counts[path.stem] == 1 else str(path) for path in files]


#: Suffixes of pictures.
PICTURES = (".png", ".svg")


def report_pair(
    explainer: Explainer,
    pair: InputPair,
    path: Path,
    title: str,
    names: tuple[str, Sequence[str]] = ("", ()),
    dated: str = "",
) -> None:
    """Explain one pair in a file of HTML or PDF, or in a picture.

    Raises TextError if the pair cannot be scored.
    """
    [(_, result, explanation)] = explainer.explained(iter([pair]))
    if explanation is None:
        raise TextError(result.error)
    if path.suffix.lower() == ".pdf":
        generated, references = names
        reference = references[result.reference_index] if references else ""
        write_pdf(explanation, path, title, (generated, reference), dated)
        return
    if path.suffix.lower() in PICTURES:
        save_figure(figures.pair(explanation), path, dpi=200)
        return
    with HtmlReport(path, title) as report:
        report.add(explanation, pair=pair)
        report.finish()


def report_pairs(
    explainer: Explainer,
    pairs: Iterable[InputPair],
    report: HtmlReport,
    name: str,
    advance: Advance = lambda count: None,
) -> Systems:
    """Explain every pair, and add a page for each to `report`."""
    systems = Systems()
    systems.begin(name, explainer.scorer.signature_for(explainer.options))
    for pair, result, explanation in explainer.explained(pairs):
        record = {**result.to_dict(), **pair.kept}
        if explanation is None:
            systems.add(pair.name, record, None)
        else:
            page = report.add(explanation, str(pair.name), system=name, pair=pair)
            systems.add(pair.name, record, page, _verdicts(explanation))
        advance(1)
    return systems


def report_scores(
    sources: Sequence[SystemSource],
    explainer: Explainer | None,
    report: HtmlReport,
    *,
    pages: int = 50,
    advance: Advance = lambda count: None,
    force: bool = False,
) -> Systems:
    """Read the score files of systems, and add pages for their worst and best pairs.

    `pages` is the number of worst and of best pairs, by margin, in equal shares of the systems.
    Without `explainer` there are no pages. Raises InputError for score files with different
    signatures (without `force`), and for pairs whose scores differ from the score file.
    """
    if not force:
        check_signatures({source.scores: _signature(source.scores) for source in sources})
    systems = Systems()
    for source in sources:
        signature = _signature(source.scores)
        explained: dict[Any, tuple[int, set[str]]] = {}
        if explainer:
            share = max(1, pages // len(sources))
            explained = _add_extremes(source, explainer, report, share, advance)
        systems.begin(source.name, signature)
        for _, row in read_scores(source.scores):
            page, verdicts = explained.get(row["id"], (None, set()))
            systems.add(row["id"], row, page, verdicts)
    return systems


def _signature(path: Path) -> str:
    """Return the signature of the first line of a score file."""
    _, row = next(read_scores(path))
    signature: str = row["signature"]
    return signature


def _add_extremes(
    source: SystemSource, explainer: Explainer, report: HtmlReport, count: int, advance: Advance
) -> dict[Any, tuple[int, set[str]]]:
    """Add pages for the `count` worst and best pairs; return page and verdicts by the pair's id."""
    assert source.pairs is not None
    options, difference = options_of(source.scores, explainer.options, explainer.scorer)
    if difference:
        raise InputError(difference)
    extremes = _extremes(source.scores, count)
    chosen = (pair for pair in read_pairs(source.pairs) if pair.name in extremes)
    pages = {}
    for pair, result, explanation in replace(explainer, options=options).explained(chosen):
        place = f"{source.scores}: id {pair.name!r}"
        _check_same(result, extremes[pair.name], place, source.pairs)
        assert explanation is not None
        page = report.add(explanation, str(pair.name), system=source.name, pair=pair)
        pages[pair.name] = page, _verdicts(explanation)
        advance(1)
    return pages


def _verdicts(explanation: Explanation) -> set[str]:
    """Return the verdicts of all chunks of a pair."""
    return {chunk.verdict for chunk in (*explanation.reference, *explanation.generated)}


def _extremes(path: Path, count: int) -> dict[Any, Sequence[float]]:
    """Return the scores of `RANKING` of the `count` worst and the `count` best pairs, by id."""
    scored = []
    for number, (_, row) in enumerate(read_scores(path)):
        if "error" not in row:
            # The number decides between equal scores, so that ids are not compared.
            scored.append(([float(row[name]) for name in RANKING], number, row["id"]))
    extremes = (*nsmallest(count, scored), *nlargest(count, scored))
    return {name: values for values, _, name in extremes}


def _check_same(result: Result, wanted: Sequence[float], place: str, pairs: object) -> None:
    """Raise InputError unless the texts in `pairs` have the scores of the score file."""
    values = [getattr(result.scores, name, math.nan) for name in RANKING]
    if not all(abs(value - old) <= _ROUNDING for value, old in zip(values, wanted, strict=True)):
        raise InputError(
            f"{place} has {_in_words(wanted)}, but its texts in {pairs} give {_in_words(values)}:"
            " give the texts that were scored"
        )


def _in_words(values: Sequence[float]) -> str:
    """Return the scores of `RANKING` with their names."""
    named = zip(RANKING, values, strict=True)
    return ", ".join(f"{LABELS[name]} {value:.4f}" for name, value in named)
