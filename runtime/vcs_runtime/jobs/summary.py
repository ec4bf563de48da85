"""What a whole job came to: mean, standard deviation and a bootstrap interval of every score."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vcs_numba import Scores

RESAMPLES = 1000
_SEED = 20250101  # fixed: the same scores give the same interval


@dataclass(frozen=True)
class Statistic:
    """Mean, sample standard deviation, and the 95 % percentile-bootstrap interval of the mean over pairs."""

    mean: float
    sd: float
    low: float
    high: float


@dataclass
class Summary:
    """Collects the scores of a job, eight bytes a number.

    `scored` and `failed` count pairs, `resumed` those of them that an earlier run had finished; `segmenters`
    says how many pairs each segmenter has cut.
    """

    signature: str
    failed: int = 0
    resumed: int = 0
    seconds: float = 0.0
    segmenters: Counter[str] = field(default_factory=Counter)
    _columns: dict[str, array[float]] = field(
        default_factory=lambda: {name: array("d") for name in Scores._fields}
    )

    @property
    def scored(self) -> int:
        """How many pairs have scores."""
        return len(self._columns["vcs"])

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one line of the output."""
        if "error" in record:
            self.failed += 1
            return
        if name := record.get("segmenter"):
            self.segmenters[name] += 1
        for name, column in self._columns.items():
            column.append(float(record[name]))

    def statistics(self) -> dict[str, Statistic]:
        """One Statistic a score, by name; empty when nothing was scored."""
        if not self.scored:
            return {}
        values = np.array([np.frombuffer(column) for column in self._columns.values()])
        rng = np.random.default_rng(_SEED)
        means = np.empty((RESAMPLES, len(values)))
        for i in range(RESAMPLES):  # one resample at a time: memory stays at one row of indices
            means[i] = values[:, rng.integers(self.scored, size=self.scored)].mean(axis=1)
        low, high = np.percentile(means, [2.5, 97.5], axis=0)
        sd = values.std(axis=1, ddof=1) if self.scored > 1 else np.zeros(len(values))
        return {
            name: Statistic(float(values[i].mean()), float(sd[i]), float(low[i]), float(high[i]))
            for i, name in enumerate(self._columns)
        }

    def to_dict(self) -> dict[str, Any]:
        """The summary for machines."""
        result: dict[str, Any] = {
            "scored": self.scored,
            "failed": self.failed,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "scores": {
                name: {"mean": s.mean, "sd": s.sd, "ci95": [s.low, s.high]}
                for name, s in self.statistics().items()
            },
            "signature": self.signature,
        }
        if len(self.segmenters) > 1:
            result["segmenters"] = dict(self.segmenters)
        return result
