"""Several systems over the same pairs: their means, and paired tests of their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np

from vcs_runtime.comparing.statistics import RESAMPLES, Difference, Values, holm, paired_difference
from vcs_runtime.jobs.bootstrap import SEED, ends_for_json, mean_interval
from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.scoring.score_table import SMALLER_IS_BETTER
from vcs_runtime.util.progress import progress_bar

#: How p-values are corrected for the number of tests.
CORRECTIONS: Final = ("holm", "none")
#: Which tests are corrected together: those of one score, or all.
FAMILIES: Final = ("score", "all")
#: The levels of significance that tables mark.
LEVELS: Final = (0.05, 0.01)

ByScore = Mapping[str, Mapping[str, Values]]
"""Scores by the name of the score, then by system: `(pairs,)`, in the same order of pairs."""


class Mean(NamedTuple):
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class Counts(NamedTuple):
    """How many pairs a system failed to score, how many it lacks, and how many have a VCS of 0."""

    failed: int
    missing: int
    zeros: int


@dataclass(frozen=True)
class Significance:
    """How the significance of differences is tested."""

    correction: str = "holm"  # one of `CORRECTIONS`
    family: str = "score"  # one of `FAMILIES`
    all_pairs: bool = False  # test all pairs of systems, not only those with the baseline
    resamples: int | None = None  # None: `enough_resamples`
    seed: int = SEED


@dataclass(frozen=True)
class System:
    """A system, and its scores over the pairs that all systems have scored."""

    name: str
    counts: Counts
    means: dict[str, Mean]
    signature: str


@dataclass(frozen=True)
class PairedTest:
    """A paired comparison of two systems by one score."""

    score: str
    system: str
    baseline: str
    difference: Difference  # system - baseline, with the p-values of this test alone
    p_bootstrap: float  # corrected for the number of tests
    p_permutation: float

    def to_dict(self) -> dict[str, Any]:
        """Return the test as a JSON object."""
        return {
            "score": self.score,
            "system": self.system,
            "baseline": self.baseline,
            **_numbers(self.difference),
            "p_bootstrap_corrected": self.p_bootstrap,
            "p_permutation_corrected": self.p_permutation,
        }


@dataclass(frozen=True)
class Comparison:
    """A comparison of several systems."""

    scores: tuple[str, ...]
    pairs: int  # that all systems have scored: only these are compared
    baseline: str
    systems: list[System]
    tests: list[PairedTest]
    all_pairs: bool
    correction: str
    family: str  # one of `FAMILIES`
    family_size: int  # number of tests over which p-values are corrected
    resamples: int
    seed: int
    reason: str = ""  # why this score was chosen; "" if the caller named it
    # Id, baseline's score, other's.
    moved: list[tuple[str, float, float]] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # systems without a score, by id
    mix: Mix = field(default_factory=Mix)

    @property
    def ranked(self) -> list[System]:
        """The systems, the best by the first score first."""
        first = self.scores[0]
        return sorted(
            self.systems,
            key=lambda system: system.means[first].mean,
            reverse=first not in SMALLER_IS_BETTER,
        )

    @property
    def about_segmenters(self) -> list[str]:
        """Sentences about the segmenters that split the pairs.

        For several segmenters, a sentence explains the effect on differences between systems.
        """
        return self.mix.sentences({system.name: system.signature for system in self.systems})

    def test_of(self, system: str, score: str) -> PairedTest | None:
        """Return the test of a system against the baseline; None for the baseline itself."""
        for test in self.tests:
            key = test.system, test.score, test.baseline
            if key == (system, score, self.baseline):
                return test
        return None

    def of_score(self, score: str) -> Comparison:
        """Return the comparison by one score, whose p-values are corrected as they were."""
        tests = [test for test in self.tests if test.score == score]
        return replace(self, scores=(score,), tests=tests, moved=[])

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON object.

        Numbers that are undefined for a single pair are null. A comparison of two systems has
        further keys, for its first score: A is the baseline, B the other system.
        """
        value = {
            "scores": list(self.scores),
            "reason": self.reason,
            "pairs": self.pairs,
            "baseline": self.baseline,
            "correction": self.correction,
            "family": self.family,
            "tests": self.family_size,
            "systems": [self._system(system) for system in self.systems],
            "comparisons": [test.to_dict() for test in self.tests],
            "split_differently": self.mix.differently,
            "left_out": list(self.left_out),
            "resamples": self.resamples,
            "seed": self.seed,
        }
        if len(self.systems) == 2:
            value |= self._two_systems()
        plain: dict[str, Any] = _plain(value)
        return plain

    def _system(self, system: System) -> dict[str, Any]:
        scores = {}
        for name in self.scores:
            mean, low, high = system.means[name]
            scores[name] = {"mean": mean, "ci95": ends_for_json(low, high)}
        return {
            "name": system.name,
            "signature": system.signature,
            **system.counts._asdict(),
            "segmenters": dict(self.mix.counts.get(system.name, {})),
            "scores": scores,
        }

    def _two_systems(self) -> dict[str, Any]:
        score = self.scores[0]
        a, b = sorted(self.systems, key=lambda system: system.name != self.baseline)
        return {
            "score": score,
            "mean_a": a.means[score].mean,
            "mean_b": b.means[score].mean,
            **_numbers(self.tests[0].difference),
            "moved": [{"id": name, "a": first, "b": second} for name, first, second in self.moved],
            "signature_a": a.signature,
            "signature_b": b.signature,
        }


def paired_tests(
    values: ByScore,
    pairs: Sequence[tuple[str, str]],
    *,
    resamples: int,
    correction: str = "holm",
    family: str = "score",
    seed: int = SEED,
) -> list[PairedTest]:
    """Test differences of systems, and correct the p-values over the tests of a score, or all."""
    keys = [(score, *pair) for score in values for pair in pairs]
    differences = []
    with progress_bar(len(keys), "testing", "tests", enabled=len(keys) > 20) as advance:
        for score, system, other in keys:
            first, second = values[score][system], values[score][other]
            differences.append(paired_difference(first, second, resamples=resamples, seed=seed))
            advance(1)
    p = np.array([(each.p_bootstrap, each.p_permutation) for each in differences]).reshape(-1, 2)
    if correction == "holm" and values:
        # Tests are in the order of scores, so those of one score are together.
        families = np.split(p, len(values) if family == "score" else 1)
        p = np.concatenate(list(map(_corrected, families)))
    tests = []
    for key, difference, corrected in zip(keys, differences, p.tolist(), strict=True):
        tests.append(PairedTest(*key, difference, *corrected))
    return tests


def _corrected(p: Values) -> Values:
    """Correct both kinds of p-values `(tests, 2)` of one family."""
    return np.column_stack([holm(kind) for kind in p.T])


def enough_resamples(tests: int, correction: str) -> int:
    """Return how many resamples show that a difference is significant at the lowest of `LEVELS`.

    The smallest p-value of a permutation test is about two of so many, and it is corrected for all
    `tests`.
    """
    return max(RESAMPLES, round(2 * tests / LEVELS[-1])) if correction == "holm" else RESAMPLES


def compare_systems(
    values: ByScore,
    counts: Mapping[str, Counts],
    signatures: Mapping[str, str],
    baseline: str,
    significance: Significance = Significance(),
) -> Comparison:
    """Compare systems over pairs that all of them have scored."""
    how = significance
    order = [baseline, *(name for name in counts if name != baseline)]
    pairs = [(b, a) for a, b in combinations(order, 2) if how.all_pairs or a == baseline]
    size = len(pairs)
    if how.family == "all":
        size *= len(values)
    resamples = how.resamples or enough_resamples(size, how.correction)
    tests = paired_tests(
        values,
        pairs,
        resamples=resamples,
        correction=how.correction,
        family=how.family,
        seed=how.seed,
    )
    systems = []
    for name in counts:
        means = {score: _mean(values[score][name], how.seed) for score in values}
        systems.append(System(name, counts[name], means, signatures[name]))
    return Comparison(
        scores=tuple(values),
        pairs=len(next(iter(values.values()))[baseline]),
        baseline=baseline,
        systems=systems,
        tests=tests,
        all_pairs=how.all_pairs,
        correction=how.correction,
        family=how.family,
        family_size=size,
        resamples=resamples,
        seed=how.seed,
    )


def _mean(values: Values, seed: int) -> Mean:
    return Mean(float(values.mean()), *mean_interval(values, seed=seed).tolist())


def _numbers(difference: Difference) -> dict[str, Any]:
    return {
        "difference": difference.mean,
        "ci95": [difference.low, difference.high],
        "p_bootstrap": difference.p_bootstrap,
        "p_permutation": difference.p_permutation,
    }


def _plain(value: Any) -> Any:
    """Replace numbers that are not finite by None, for JSON."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
