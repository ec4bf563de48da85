"""The overview of many pairs in a report, with eight bytes for each number."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.summary import Statistic, Summary
from vcs_runtime.scoring import flags
from vcs_runtime.scoring.score_table import HEADLINE, PART, SCORES, up_to

#: The scores of the tables.
SHOWN: Final = up_to(PART)
#: The scores that rank pairs, the worst first: each decides where those before it are equal.
RANKING: Final = ("margin", "vcs", "gas")
#: The mark that a pair with a flag has in tables.
MARKS: Final = {
    flags.ORDER_UNDEFINED: "0: not judged",
    flags.SINGLE_CHUNKS: "1 x 1",
    flags.ZERO_CONTENT: "0: content",
    flags.ZERO_ORDER: "0: order",
    flags.BELOW_GATE: "0: gate",
}
#: Maximum number of rows of the table; of more pairs, the worst and the best are listed.
MAX_ROWS: Final = 20_000
_MAX_FAILED = 1000
_BIN = 0.05  # the width of a bar of a histogram


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
        Name and error of each pair that could not be scored; at most the first 1,000.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.summaries: list[Summary] = []
        self.failed: list[tuple[str, str]] = []
        self._pairs: list[str] = []
        self._system = array("H")
        self._page = array("q")
        self._flags = array("B")  # one bit for each of `MARKS`
        self._scores = {name: array("d") for name in SHOWN}

    def begin(self, name: str, signature: str) -> None:
        """Begin a system: the pairs that are added next belong to it."""
        self.names.append(name)
        self.summaries.append(Summary(signature))

    def add(self, pair: object, record: Mapping[str, Any], page: int | None) -> None:
        """Add one line of a score file; `page` is the number of the pair's page."""
        self.summaries[-1].add(record)
        if "error" in record:
            if len(self.failed) < _MAX_FAILED:
                self.failed.append((str(pair), str(record["error"])))
            return
        self._pairs.append(str(pair))
        self._system.append(len(self.names) - 1)
        self._page.append(-1 if page is None else page)
        found = flags.flags_of(record, int(record["n_ref"]), int(record["n_gen"]))
        self._flags.append(sum(1 << bit for bit, flag in enumerate(MARKS) if flag in found))
        for name, column in self._scores.items():
            column.append(float(record[name]))

    @property
    def scored(self) -> int:
        """Number of pairs that have scores."""
        return len(self._pairs)

    def values(self, system: int, score: str) -> npt.NDArray[np.float64]:
        """Return one score of a system's pairs, in the order in which they were added.

        Parameters
        ----------
        system
            Position of the system in `names`.
        score
            Name of the score, one of `SHOWN`.

        Returns
        -------
        values
            `(n,)` float64.
        """
        column: npt.NDArray[np.float64] = np.frombuffer(self._scores[score])
        values: npt.NDArray[np.float64] = column[np.frombuffer(self._system, dtype=np.uint16) == system]
        return values

    def statistics(self) -> list[dict[str, Statistic]]:
        """Return mean, standard deviation and 95 % interval of every score, for each system."""
        return [summary.statistics() for summary in self.summaries]

    def judged(self, system: int) -> dict[str, Statistic]:
        """Return the statistics without the pairs whose order was not judged; empty if they say no more."""
        summary = self.summaries[system]
        return summary.statistics(judged=True) if 0 < summary.counts.not_judged < summary.scored else {}

    @property
    def mostly_zero(self) -> bool:
        """Whether VCS is 0 for most pairs of all systems."""
        zeros = sum(summary.counts.zeros for summary in self.summaries)
        return flags.FlagCounts(self.scored, zeros).mostly_zero

    def histogram(self, system: int, score: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Count a system's pairs in bins of 0.05 over the range of a score.

        Parameters
        ----------
        system
            Position of the system in `names`.
        score
            Name of the score, one of `SHOWN`.

        Returns
        -------
        counts
            `(bins,)` int64. Values beyond the range count in the outermost bins.
        edges
            `(bins + 1,)` float64.
        """
        low, high = SCORES[score].low, SCORES[score].high
        values = np.clip(self.values(system, score), low, high)
        return np.histogram(values, bins=round((high - low) / _BIN), range=(low, high))

    def ranked(self) -> npt.NDArray[np.int64]:
        """Return the positions of all pairs, the worst first; equal pairs as they were added."""
        return np.lexsort([np.frombuffer(self._scores[name]) for name in reversed(RANKING)])

    def row(self, i: int) -> list[Any]:
        """Return a row of the table of pairs: pair, system, page, flags, then the scores of `SHOWN`."""
        page = self._page[i] if self._page[i] >= 0 else None
        marked = [flag for bit, flag in enumerate(MARKS) if self._flags[i] >> bit & 1]
        scores = [round(float(column[i]), 4) for column in self._scores.values()]
        return [self._pairs[i], self._system[i], page, marked, *scores]

    def to_index(self, title: str) -> dict[str, Any]:
        """Return the data of the overview for the script of the page; `row` says what a row holds."""
        order = self.ranked()
        rows = order if len(order) <= MAX_ROWS else np.r_[order[: MAX_ROWS // 2], order[-MAX_ROWS // 2 :]]
        left_out = len(order) - len(rows)
        return {
            "title": title,
            "systems": [self._described(i, statistics) for i, statistics in enumerate(self.statistics())],
            "ranking": RANKING,
            "mostly_zero": self.mostly_zero,
            "rows": [self.row(int(i)) for i in rows],
            "order": [self._page[int(i)] for i in order if self._page[int(i)] >= 0],
            "left_out": f"{left_out} pairs between the worst and the best are not listed" if left_out else "",
            "failed": self.failed,
            "signatures": list(dict.fromkeys(summary.signature for summary in self.summaries)),
        }

    def _described(self, system: int, statistics: dict[str, Statistic]) -> dict[str, Any]:
        summary = self.summaries[system]
        return {
            "name": self.names[system],
            "scored": summary.scored,
            "failed": summary.failed,
            "sentences": summary.counts.sentences(),
            "statistics": {name: asdict(statistics[name]) for name in SHOWN if statistics},
            "not_judged": summary.counts.not_judged,
            "judged": {name: s.mean for name, s in self.judged(system).items()},
            "histograms": {name: self.histogram(system, name)[0].tolist() for name in up_to(HEADLINE)},
        }
