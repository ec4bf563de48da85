"""The overview of many pairs in a report, with eight bytes for each number."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.bootstrap import ends_for_json
from vcs_runtime.jobs.pairs import OUTPUT_KEYS
from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.jobs.summary import Statistic, Summary
from vcs_runtime.report.page import DIGITS
from vcs_runtime.report.wording import NAMED, settings_of, title_of
from vcs_runtime.scoring import flags
from vcs_runtime.scoring.score_table import ALL, FURTHER, HEADLINE, PART, SCORES, up_to
from vcs_runtime.scoring.verdicts import VERDICTS
from vcs_runtime.util.printable import counted, enumerated

#: The scores that tables may show.
_COLUMNS: Final = up_to(PART, FURTHER)
#: The scores that rank pairs, the worst first: each decides where those before it are equal.
RANKING: Final = ("margin", "vcs", "gas")
#: The mark of each flag in tables.
MARKS: Final = {
    flags.ORDER_UNDEFINED: "0: order not judged",
    flags.SINGLE_CHUNKS: "one sentence each",
    flags.ZERO_CONTENT: "0: too little shared",
    flags.ZERO_ORDER: "0: order by chance",
    flags.BELOW_GATE: "0: weak content and order",
    flags.NOT_SPLIT: "not split",
}
#: Maximum number of rows of the table; if there are more pairs, the worst and best are listed.
MAX_ROWS: Final = 20_000
_MAX_FAILED = 1000
_MAX_KEPT = 500  # characters of a kept column in the table
_BIN = 0.05  # the width of a bar of a histogram


class Failed(NamedTuple):
    """A pair that could not be scored: its name, reason, system position and kept columns."""

    pair: str
    reason: str
    system: int
    kept: dict[str, str]


class Systems:
    """Scores of one or several systems, pair by pair.

    A system is one score file, or one file of pairs that is explained.

    Attributes
    ----------
    names
        Names of the systems.
    summaries
        One summary of scores for each system.
    failed
        The pairs that could not be scored; at most the first 1,000.
    comparisons
        For each headline score, the JSON object of a comparison of the systems.
    incomparable
        Why the systems are not compared; "" if they are, or if there is only one.
    dated
        Date of the scores or the pairs; "" for no date.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.summaries: list[Summary] = []
        self.failed: list[Failed] = []
        self.comparisons: Sequence[Mapping[str, Any]] = ()
        self.incomparable = ""
        self.dated = ""
        self._videos: set[str] = set()
        self._pairs: list[str] = []
        self._system = array("H")
        self._page = array("q")
        self._flags = array("B")  # one bit for each of `MARKS`
        self._verdicts = array("H")  # one bit for each of `VERDICTS`
        self._columns: list[Mapping[str, str]] = []  # the kept columns of each pair
        self._scores = {name: array("d") for name in _COLUMNS}

    def begin(self, name: str, signature: str) -> None:
        """Begin a system: the pairs that are added next belong to it."""
        self.names.append(name)
        self.summaries.append(Summary(signature))

    def add(
        self,
        pair: object,
        record: Mapping[str, Any],
        page: int | None,
        verdicts: Collection[str] = (),
    ) -> None:
        """Add a pair.

        Parameters
        ----------
        pair
            Name of the pair.
        record
            Its line of a score file. Columns that are not scores are kept.
        page
            Number of the pair's page; None if it has none.
        verdicts
            The verdicts that occur among its chunks, if it was explained.
        """
        self.summaries[-1].add(record)
        system = len(self.names) - 1
        self._videos.add(str(pair))
        columns = {name[:_MAX_KEPT]: text[:_MAX_KEPT] for name, text in kept_texts(record).items()}
        if "error" in record:
            if len(self.failed) < _MAX_FAILED:
                self.failed.append(Failed(str(pair), str(record["error"]), system, columns))
            return
        self._pairs.append(str(pair))
        self._system.append(system)
        self._page.append(-1 if page is None else page)
        noted = record.get("flags") or ()
        pair_flags = flags.flags_of(record, int(record["n_ref"]), int(record["n_gen"]), noted)
        self._flags.append(_bits(pair_flags, MARKS))
        self._verdicts.append(_bits(verdicts, VERDICTS))
        self._columns.append(columns)
        for name, column in self._scores.items():
            column.append(float(record[name] if name in SCORES else record.get(name, math.nan)))

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics in addition to VCS that all systems have."""
        metrics = list(FURTHER)
        scored = [summary for summary in self.summaries if summary.scored]
        for summary in scored:
            metrics = [metric for metric in metrics if metric in summary.also]
        return tuple(metrics) if scored else ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The scores of the tables."""
        return up_to(PART, self.also)

    @property
    def headline(self) -> tuple[str, ...]:
        """The scores that are always shown."""
        return up_to(HEADLINE, self.also)

    @property
    def scored(self) -> int:
        """Number of pairs that have scores."""
        return len(self._pairs)

    @property
    def title(self) -> str:
        """A title that names the systems and the number of videos.

        Each distinct pair name counts as one video.
        """
        return title_of(self.names, len(self._videos))

    @property
    def counts(self) -> flags.FlagCounts:
        """The zeros, and the pairs that could not be judged, of all systems together."""
        total = flags.FlagCounts()
        for summary in self.summaries:
            total += summary.counts
        return total

    @property
    def about_segmenters(self) -> list[str]:
        """Sentences on which segmenters split the pairs, and how several of them affect scores."""
        counts, signatures = {}, {}
        for name, summary in zip(self.names, self.summaries, strict=True):
            counts[name] = summary.segmenters
            signatures[name] = summary.signature
        differently = self.comparisons[0]["split_differently"] if self.comparisons else None
        return Mix(counts, differently).sentences(signatures)

    @property
    def beside_points(self) -> list[str]:
        """Sentences on systems below or above the reference points, grouped by headline score."""
        signatures = [summary.signature for summary in self.summaries]
        statistics = self.statistics()
        sentences = []
        for score in self.headline:
            means = {}
            for name, system in zip(self.names, statistics, strict=True):
                if system:
                    means[name] = system[score].mean
            sentences.append(flags.beside_points(means, score, signatures))
        return [sentence for sentence in sentences if sentence]

    def values(self, system: int, score: str) -> npt.NDArray[np.float64]:
        """Return one score of a system's pairs, `(n,)` float64, in the order of their addition."""
        column: npt.NDArray[np.float64] = np.frombuffer(self._scores[score])
        values: npt.NDArray[np.float64] = column[
            np.frombuffer(self._system, dtype=np.uint16) == system
        ]
        return values

    def statistics(self) -> list[dict[str, Statistic]]:
        """Return mean, standard deviation and 95 % interval of every score, for each system."""
        return [summary.statistics() for summary in self.summaries]

    def judged(self, system: int) -> dict[str, Statistic]:
        """Return the statistics of a system without the pairs whose order could not be judged.

        The result is empty if this leaves out no pair or every pair.
        """
        summary = self.summaries[system]
        if 0 < summary.counts.not_judged < summary.scored:
            return summary.statistics(judged=True)
        return {}

    def histogram(
        self, system: int, score: str
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Count a system's pairs in bins of 0.05 over a score's range; outliers go to the end bins.

        The counts are int64 `(bins,)`, and the edges float64 `(bins + 1,)`.
        """
        low, high = ALL[score].low, ALL[score].high
        values = np.clip(self.values(system, score), low, high)
        return np.histogram(values, bins=round((high - low) / _BIN), range=(low, high))

    def ranked(self) -> npt.NDArray[np.int64]:
        """Return the positions of all pairs, the worst first; equal pairs as they were added."""
        return np.lexsort([np.frombuffer(self._scores[name]) for name in reversed(RANKING)])

    def row(self, i: int) -> list[Any]:
        """Return a pair's row of the table of pairs.

        The row has pair, system, page (None without a page) and flags, then the scores of tables.
        """
        page = self._page[i] if self._page[i] >= 0 else None
        marked = [flag for bit, flag in enumerate(MARKS) if self._flags[i] >> bit & 1]
        scores = [round(self._scores[name][i], DIGITS) for name in self.shown]
        return [self._pairs[i], self._system[i], page, marked, *scores]

    def to_index(self, title: str) -> dict[str, Any]:
        """Return the data of the overview for the script of the page.

        `rows` are those of `row`. `present` has a number for each row, with one bit for each of
        `VERDICTS` among its chunks.
        """
        title = title or self.title
        order = self.ranked().tolist()
        rows = order
        if len(order) > MAX_ROWS:
            rows = order[: MAX_ROWS // 2] + order[-MAX_ROWS // 2 :]
        columns = self._column_names()
        failed = sum(summary.failed for summary in self.summaries)
        signatures = dict.fromkeys(summary.signature for summary in self.summaries)
        points = flags.points_for(signatures)
        return {
            "title": title,
            "about": self._about(title, failed),
            "rule": flags.what_to_report(self.counts.zeros, self.scored) if self.scored else "",
            "report": flags.scores_to_report(self.counts.zeros, self.scored),
            "sentences": self._sentences(),
            "systems": [self._described(system) for system in range(len(self.names))],
            "comparisons": list(map(_shortened, self.comparisons)),
            "incomparable": self.incomparable,
            "ranking": RANKING,
            "points": [{"name": name, "scores": means} for name, means in points.items()],
            "rows": list(map(self.row, rows)),
            "present": [self._verdicts[i] for i in rows],
            "order": [self._page[i] for i in order if self._page[i] >= 0],
            "left_out": len(order) - len(rows),
            "failed": [(*pair[:-1], _values(pair.kept, columns)) for pair in self.failed],
            "failed_count": failed,
            "columns": columns,
            "kept": [_values(self._columns[i], columns) for i in rows] if columns else [],
            "settings": [(signature, settings_of(signature)) for signature in signatures],
        }

    def _sentences(self) -> list[str]:
        """Return sentences on pairs with flags, and on the segmenters."""
        not_split = self.counts.about_not_split()
        unsplit = [not_split] if not_split else []
        return [*self.counts.sentences(), *unsplit, *self.about_segmenters]

    def _column_names(self) -> list[str]:
        """Return the names of all kept columns, in the order in which they occur."""
        names: dict[str, None] = {}
        for columns in self._columns:
            names |= dict.fromkeys(columns)
        for pair in self.failed:
            names |= dict.fromkeys(pair.kept)
        return list(names)

    def _about(self, title: str, failed: int) -> list[str]:
        """Return the parts of the line below the title: systems, videos, pairs and date."""
        scored = f"{counted(self.scored, 'pair')} scored"
        if failed:
            scored += f", {failed:,} not scored"
        parts = [enumerated(self.names), counted(len(self._videos), "video"), scored]
        if title == self.title:
            # The title has the number of videos, and the names unless there are too many.
            parts = [parts[0], scored] if len(self.names) > NAMED else [scored]
        return [*parts, self.dated] if self.dated else parts

    def _described(self, system: int) -> dict[str, Any]:
        """Return the data of a system."""
        summary = self.summaries[system]
        statistics = {}
        every = summary.statistics()
        for name in self.shown if every else ():
            low, high = ends_for_json(every[name].low, every[name].high)
            statistics[name] = {**asdict(every[name]), "low": low, "high": high}
        return {
            "name": self.names[system],
            "signature": summary.signature,
            "scored": summary.scored,
            "failed": summary.failed,
            "zeros": summary.counts.zeros,
            "statistics": statistics,
            "not_judged": summary.counts.not_judged,
            "judged": {name: s.mean for name, s in self.judged(system).items()},
            "histograms": {name: self._bins(system, name) for name in figures_of(self.also)},
        }

    def _bins(self, system: int, score: str) -> list[int]:
        counts, _ = self.histogram(system, score)
        bins: list[int] = counts.tolist()
        return bins


def figures_of(also: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the scores that are always shown: the headline scores and SAS.

    SAS is included because the margin depends on SAS.
    """
    return tuple(name for name in up_to(PART, also) if ALL[name].level == HEADLINE or name == "sas")


def kept_texts(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the kept columns of a record as texts, without empty values.

    Kept columns are all columns outside `OUTPUT_KEYS`. Values other than strings become JSON.
    """
    texts = {}
    for name, value in record.items():
        if name in OUTPUT_KEYS or value is None or value == "":
            continue
        texts[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return texts


def _bits(names: Collection[str], known: Collection[str]) -> int:
    """Return a number with one bit for each of `known`, set if it is among `names`."""
    bits = 0
    for bit, name in enumerate(known):
        if name in names:
            bits |= 1 << bit
    return bits


def _shortened(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison that has the number of its left-out pairs instead of their names."""
    return {**comparison, "left_out": len(comparison["left_out"])}


def _values(kept: Mapping[str, str], columns: Sequence[str]) -> list[str]:
    return [kept.get(name, "") for name in columns]
