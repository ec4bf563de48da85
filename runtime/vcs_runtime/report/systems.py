"""What a report of many pairs says about all of them, eight bytes a number: `Systems`."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.summary import Statistic, Summary
from vcs_runtime.scoring.explanation import LABELS, VERDICTS

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
#: Rows of the table: of more pairs, the worst and the best.
MOST_ROWS: Final = 20_000
_MOST_FAILED = 1000
_BINS = 20


class Systems:
    """Scores of one or several systems (a score file each), pair by pair."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.summaries: list[Summary] = []
        self.failed: list[tuple[str, str]] = []
        self._pairs: list[str] = []
        self._system = array("H")
        self._page = array("q")
        self._scores = {name: array("d") for name in SHOWN}

    def begin(self, name: str, signature: str) -> None:
        """What is added from now on belongs to this system."""
        self.names.append(name)
        self.summaries.append(Summary(signature))

    def add(self, pair: object, record: Mapping[str, Any], page: int | None) -> None:
        """Add a line of a score file; `page`: the number of the pair's page."""
        self.summaries[-1].add(record)
        if "error" in record:
            if len(self.failed) < _MOST_FAILED:
                self.failed.append((str(pair), str(record["error"])))
            return
        self._pairs.append(str(pair))
        self._system.append(len(self.names) - 1)
        self._page.append(-1 if page is None else page)
        for name, column in self._scores.items():
            column.append(float(record[name]))

    @property
    def scored(self) -> int:
        """How many pairs have scores."""
        return len(self._pairs)

    def values(self, system: int, score: str) -> npt.NDArray[np.float64]:
        """`(n,)` float64, one score of a system's pairs in the order in which they were added."""
        column: npt.NDArray[np.float64] = np.frombuffer(self._scores[score])
        chosen: npt.NDArray[np.float64] = column[np.frombuffer(self._system, dtype=np.uint16) == system]
        return chosen

    def statistics(self) -> list[dict[str, Statistic]]:
        """By system: mean, standard deviation and 95 % interval of every score."""
        return [summary.statistics() for summary in self.summaries]

    def to_index(self, title: str) -> dict[str, Any]:
        """What the page's script reads; positions of a row: pair, system, page, then `SHOWN`."""
        vcs = np.frombuffer(self._scores["vcs"])
        order = np.argsort(vcs, kind="stable")
        kept = order if len(order) <= MOST_ROWS else np.r_[order[: MOST_ROWS // 2], order[-MOST_ROWS // 2 :]]
        left_out = len(order) - len(kept)
        return {
            "title": title,
            "labels": LABELS,
            "meanings": VERDICTS,
            "scores": SHOWN,
            "systems": [self._described(i, found) for i, found in enumerate(self.statistics())],
            "rows": [self._row(int(i)) for i in kept],
            "order": [self._page[int(i)] for i in order if self._page[int(i)] >= 0],
            "left_out": f"{left_out} pairs between the worst and the best are not listed" if left_out else "",
            "failed": self.failed,
            "signatures": list(dict.fromkeys(summary.signature for summary in self.summaries)),
        }

    def _described(self, system: int, found: dict[str, Statistic]) -> dict[str, Any]:
        summary = self.summaries[system]
        counts = np.histogram(np.clip(self.values(system, "vcs"), 0, 1), bins=_BINS, range=(0, 1))[0]
        return {
            "name": self.names[system],
            "scored": summary.scored,
            "failed": summary.failed,
            "statistics": {
                name: {"mean": s.mean, "sd": s.sd, "low": s.low, "high": s.high} for name, s in found.items()
            },
            "histogram": counts.tolist(),
        }

    def _row(self, i: int) -> list[Any]:
        page = self._page[i] if self._page[i] >= 0 else None
        scores = [round(float(column[i]), 4) for column in self._scores.values()]
        return [self._pairs[i], self._system[i], page, *scores]
