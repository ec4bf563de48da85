"""The statistics of a whole job: mean, standard deviation and bootstrap interval of every score."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vcs_runtime.jobs.bootstrap import ends_for_json, mean_interval
from vcs_runtime.jobs.output import SKIP, ZERO
from vcs_runtime.scoring import score_table
from vcs_runtime.scoring.flags import NOT_JUDGED, NOT_SPLIT, ZEROS, FlagCounts
from vcs_runtime.scoring.signature import long_form

# The scores of a text that says nothing: no content, no order, and so the lowest margin.
_SAYS_NOTHING = dict.fromkeys(score_table.ALL, 0.0) | {"margin": -1.0, "margin_strict": -1.0}
_EVERY = score_table.names_with(score_table.FURTHER)


@dataclass(frozen=True)
class Statistic:
    """Statistics of a score over pairs: mean, sample standard deviation, 95% bootstrap interval."""

    mean: float
    sd: float
    low: float
    high: float


@dataclass
class Summary:
    """Collects the scores of a job, in eight bytes a number."""

    signature: str
    failed_as: str = SKIP
    failed: int = 0
    resumed: int = 0
    seconds: float = 0.0
    segmenters: Counter[str] = field(default_factory=Counter)
    counts: FlagCounts = field(default_factory=FlagCounts)
    references: Counter[int] = field(default_factory=Counter)  # pairs by number of references
    lone_sentences: int = 0  # pairs of several references, the best of which is one sentence
    keep: int = 0  # number of lines that `worst` returns
    _lines: list[Mapping[str, Any]] = field(default_factory=list)
    _columns: dict[str, array[float]] = field(
        default_factory=lambda: {name: array("d") for name in _EVERY}
    )
    _judged: bytearray = field(default_factory=bytearray)
    _with: Counter[str] = field(default_factory=Counter)

    @property
    def scored(self) -> int:
        """Number of pairs that have scores."""
        return self.counts.scored

    @property
    def counted(self) -> int:
        """Number of pairs that the means are over."""
        return len(self._columns["vcs"])

    @property
    def total(self) -> int:
        """Number of all pairs."""
        return self.scored + self.failed

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics beside VCS that all scored pairs have."""
        if not self.scored:
            return ()
        return tuple(name for name in score_table.FURTHER if self._with[name] == self.scored)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one line of the output."""
        if "error" in record:
            self.failed += 1
            if self.failed_as == ZERO:
                self._count(_SAYS_NOTHING, judged=True)
            return
        if name := record.get("segmenter"):
            self.segmenters[name] += 1
        if self.keep:
            self._lines.append(record)
            if len(self._lines) > 8 * self.keep:
                self._drop_lines()
        references = record.get("n_references", 1)
        self.references[references] += 1
        if references > 1 and record["n_ref"] == 1 and record["n_gen"] > 1:
            self.lone_sentences += 1
        self._with.update(score_table.metrics_in(record))
        judged = self.counts.add(
            record,
            int(record["n_ref"]),
            int(record["n_gen"]),
            record.get("flags") or (),  # missing in old files
            str(record.get("id", "")),
        )
        self._count(record, judged=judged)

    def _drop_lines(self) -> None:
        """Drop the lines that are not among the worst, whichever score will rank them."""
        worst = [*self.worst(("vcs", "margin", "gas")), *self.worst(("margin", "vcs", "gas"))]
        identities = set(map(id, worst))
        self._lines = [line for line in self._lines if id(line) in identities]

    def _count(self, scores: Mapping[str, Any], *, judged: bool) -> None:
        for name, column in self._columns.items():
            # Every line has the scores of VCS. Other metrics may be missing.
            value = scores[name] if name in score_table.NAMES else scores.get(name, math.nan)
            column.append(float(value))
        self._judged.append(judged)

    def worst(self, ranking: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the `keep` worst lines by these scores; equal ones in the order of the input."""
        lines = sorted(self._lines, key=lambda line: [line[name] for name in ranking])
        return lines[: self.keep]

    def statistics(self, *, judged: bool = False) -> dict[str, Statistic]:
        """Compute the statistics of every score, by its name; empty if there are no pairs."""
        names = score_table.names_with(self.also)
        values = np.array([np.frombuffer(self._columns[name]) for name in names])
        if judged:
            values = values[:, np.frombuffer(self._judged, bool)]
        if not values.size:
            return {}
        low, high = mean_interval(values)
        sd = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.zeros(len(values))
        result = {}
        for i, name in enumerate(names):
            mean = float(values[i].mean())
            result[name] = Statistic(mean, float(sd[i]), float(low[i]), float(high[i]))
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        result: dict[str, Any] = {
            "scored": self.scored,
            "failed": self.failed,
            "failed_as": self.failed_as,
            "means_over": self.counted,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "scores": _plain(self.statistics()),
            "zeros": {"pairs": self.counts.zeros, **self._flags(ZEROS)},
            "not_judged": self._not_judged(),
            "signature": self.signature,
            "signature_long": long_form(self.signature),
        }
        if max(self.references, default=1) > 1:
            result["references"] = {"fewest": min(self.references), "most": max(self.references)}
        if count := self.counts.flags[NOT_SPLIT]:
            result[NOT_SPLIT] = {"pairs": count, "first": self.counts.first_not_split}
        if len(self.segmenters) > 1:
            result["segmenters"] = dict(self.segmenters)
        return result

    def _not_judged(self) -> dict[str, Any]:
        """Return the number of pairs whose order could not be judged, in total and by flag.

        If there are such pairs, `scores_without` has the statistics of the other pairs.
        """
        result = {"pairs": self.counts.not_judged, **self._flags(NOT_JUDGED)}
        if self.counts.not_judged:
            result["scores_without"] = _plain(self.statistics(judged=True))
        return result

    def _flags(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the number of pairs with each flag."""
        return {name: self.counts.flags[name] for name in names}


def _plain(statistics: Mapping[str, Statistic]) -> dict[str, Any]:
    return {
        name: {"mean": s.mean, "sd": s.sd, "ci95": ends_for_json(s.low, s.high)}
        for name, s in statistics.items()
    }
