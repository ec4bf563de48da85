"""What a reward is made of: one score, or a weighted sum of several; and warnings that are given once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import isfinite
from operator import ne
from typing import Any, NamedTuple

from vcs_runtime.errors import unknown_choice
from vcs_runtime.scoring.flags import FlagCounts
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.score_table import ALL, FURTHER, SMALLER_IS_BETTER

Score = str | Mapping[str, float] | Iterable[tuple[str, float]]
"""The name of a score, or weights by name."""

_LOG = logging.getLogger("vcs_runtime.training")
#: Number of rewards after which zeros are reported: one group of completions.
_ENOUGH = 8


class Reward(NamedTuple):
    """A weighted sum of scores, by name."""

    weights: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, score: Score) -> Reward:
        """Make a reward from the name of a score, or from weights. Raises ValueError that names `score`."""
        if isinstance(score, str):
            weights = [(score, 1.0)]
        else:
            weights = [(name, weight) for name, weight in dict(score).items()]
        if not weights:
            raise ValueError("score: there are no weights")
        for name, weight in weights:
            if name not in ALL:
                raise unknown_choice("score", name, tuple(own for own in ALL if own not in SMALLER_IS_BETTER))
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not isfinite(weight):
                raise ValueError(f"score: the weight of {name} must be a finite number, not {weight!r}")
            if name in SMALLER_IS_BETTER and weight > 0:
                raise ValueError(
                    f"score: of {name}, smaller is better: give it a weight below 0, or take 'margin_strict'"
                )
        return cls(tuple((name, float(weight)) for name, weight in weights))

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics beside VCS that the reward needs."""
        names = {name for name, _ in self.weights}
        return tuple(metric for metric, scores in FURTHER.items() if names & scores.keys())

    def value(self, result: Result) -> float:
        """Return the reward of a pair that could be scored with the metrics of `also`."""
        return sum(weight * float(getattr(result, name)) for name, weight in self.weights)

    @property
    def lowest(self) -> float:
        """The smallest value that the reward can have: that of a text which says nothing."""
        return sum(
            weight * (ALL[name].low if weight > 0 else ALL[name].high) for name, weight in self.weights
        )

    @property
    def is_vcs(self) -> bool:
        """Whether the reward is 0 wherever VCS is."""
        return all(name in ("vcs", "vcs_strict") for name, _ in self.weights)


class Warnings:
    """Logs each kind of warning once: a training has thousands of steps."""

    def __init__(self) -> None:
        self._counts = FlagCounts()
        self._given: set[str] = set()

    def errors(self, results: Sequence[Result]) -> int:
        """Warn of results without a score, with the first error. Returns their number."""
        errors = [result.error for result in results if result.error]
        if errors:
            self._once(
                "errors",
                "%d of %d could not be scored: %s (reported once)",
                len(errors),
                len(results),
                errors[0],
            )
        return len(errors)

    def zeros(self, results: Sequence[Result]) -> None:
        """Warn, as soon as it shows, that most results have a VCS of 0, which teaches a model nothing."""
        if "zeros" in self._given:
            return
        for result in results:
            if result.scores is not None:
                self._counts.add(result.scores._asdict(), result.n_ref, result.n_gen)
        if self._counts.scored >= _ENOUGH and self._counts.mostly_zero:
            self._once(
                "zeros",
                '%s Rewards that are all 0 teach nothing: TrainingScorer(score="margin") gives others.',
                " ".join(self._counts.sentences()),
            )

    def equal_groups(self, prompts: Sequence[Any], rewards: Sequence[float | None]) -> None:
        """Warn if all completions of one prompt have the same reward: GRPO then has no advantage."""
        # A prompt may hold images: prompts are looked at only where two rewards in a row are equal.
        if "groups" in self._given or len(prompts) != len(rewards) or all(map(ne, rewards, rewards[1:])):
            return
        for _, group in groupby(zip(prompts, rewards, strict=True), key=lambda pair: repr(pair[0])):
            values = [reward for _, reward in group]
            if len(values) > 1 and values[0] is not None and len(set(values)) == 1:
                message = (
                    "all %d completions of a prompt have reward %g, which teaches nothing (reported once)"
                )
                self._once("groups", message, len(values), values[0])

    def _once(self, kind: str, message: str, *arguments: object) -> None:
        if kind not in self._given:
            self._given.add(kind)
            _LOG.warning(message, *arguments)
