"""The overview of many pairs in a report, with eight bytes for each number."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.summary import Statistic, Summary
from vcs_runtime.scoring.explanation import VERDICTS
from vcs_runtime.scoring.score_table import LABELS

#: The scores that the table of pairs shows.
SHOWN: Final = (
    "vcs",
    "gas",
    "las",
    "las_precision",
    "las_recall",
    "nas",
    "nas_d",
    "nas_l",
    "window_regularizer",
)
#: Maximum number of rows of the table; of more pairs, the worst and the best are listed.
MAX_ROWS: Final = 20_000
_MAX_FAILED = 1000
_BINS = 20


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

    def to_index(self, title: str) -> dict[str, Any]:
        """Return the data of the overview for the script of the page.

        Each row of the table holds pair, system, page, then the scores of `SHOWN`.
        """
        vcs = np.frombuffer(self._scores["vcs"])
        order = np.argsort(vcs, kind="stable")
        rows = order if len(order) <= MAX_ROWS else np.r_[order[: MAX_ROWS // 2], order[-MAX_ROWS // 2 :]]
        left_out = len(order) - len(rows)
        return {
            "title": title,
            "labels": LABELS,
            "meanings": VERDICTS,
            "scores": SHOWN,
            "systems": [self._described(i, statistics) for i, statistics in enumerate(self.statistics())],
            "rows": [self._row(int(i)) for i in rows],
            "order": [self._page[int(i)] for i in order if self._page[int(i)] >= 0],
            "left_out": f"{left_out} pairs between the worst and the best are not listed" if left_out else "",
            "failed": self.failed,
            "signatures": list(dict.fromkeys(summary.signature for summary in self.summaries)),
        }

    def _described(self, system: int, statistics: dict[str, Statistic]) -> dict[str, Any]:
        summary = self.summaries[system]
        counts = np.histogram(np.clip(self.values(system, "vcs"), 0, 1), bins=_BINS, range=(0, 1))[0]
        return {
            "name": self.names[system],
            "scored": summary.scored,
            "failed": summary.failed,
            "statistics": {
                name: {"mean": s.mean, "sd": s.sd, "low": s.low, "high": s.high}
                for name, s in statistics.items()
            },
            "histogram": counts.tolist(),
        }

    def _row(self, i: int) -> list[Any]:
        page = self._page[i] if self._page[i] >= 0 else None
        scores = [round(float(column[i]), 4) for column in self._scores.values()]
        return [self._pairs[i], self._system[i], page, *scores]
