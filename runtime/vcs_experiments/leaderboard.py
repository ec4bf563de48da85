"""The leaderboard of CLIP-CC-Bench: Borda points over several judges (docs/guide/clip-cc-bench.md).

Source: `tools/build_leaderboard.py` of the benchmark, 2026-08-21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from vcs_runtime.errors import InputError
from vcs_runtime.util.numbers import exact_means

#: How systems are ranked.
RULE = (
    "points of a judge = number of systems with a lower mean HM-CF; rank by the sum of points, then"
    " by the mean HM-CF over judges"
)


class Means(NamedTuple):
    """The means of a system by one judge, rounded to 6 decimals as the benchmark's files are."""

    coarse: float
    fine_f1: float
    hm_cf: float


ByJudge = Mapping[str, Mapping[str, Means]]
"""Means by judge, then by system."""


@dataclass(frozen=True)
class Place:
    """A row of the leaderboard."""

    rank: int  # from 1
    system: str
    name: str  # of the system, for people
    borda: int  # sum of points over all judges
    mean_hm_cf: float
    mean_coarse: float
    mean_fine: float
    points: dict[str, int]  # by judge


def leaderboard(means: ByJudge, names: Mapping[str, str]) -> list[Place]:
    """Rank systems as the benchmark does.

    Raise InputError if a judge lacks a system or has equal means for two systems.
    """
    systems = sorted({system for own in means.values() for system in own})
    points: dict[str, dict[str, int]] = {system: {} for system in systems}
    for judge in sorted(means):
        own = means[judge]
        if missing := [system for system in systems if system not in own]:
            raise InputError(f"judge {judge}: no results of {', '.join(missing)}")
        order = sorted(systems, key=lambda system: own[system].hm_cf)
        for lower, system in enumerate(order):
            if lower and own[system].hm_cf == own[order[lower - 1]].hm_cf:
                raise InputError(
                    f"judge {judge}: {order[lower - 1]} and {system} have the same mean HM-CF, "
                    f"{own[system].hm_cf}, and the benchmark's rule has no order for equal means"
                )
            points[system][judge] = lower
    # Exactly rounded sums, as `sum` has them since Python 3.12, with which the benchmark's table
    # was made.
    averages = {
        system: Means(*exact_means([own[system] for own in means.values()])) for system in systems
    }
    order = sorted(
        systems,
        key=lambda system: (sum(points[system].values()), averages[system].hm_cf),
        reverse=True,
    )
    return [
        Place(
            rank,
            system,
            names.get(system, system),
            sum(points[system].values()),
            averages[system].hm_cf,
            averages[system].coarse,
            averages[system].fine_f1,
            points[system],
        )
        for rank, system in enumerate(order, 1)
    ]


def document(places: list[Place], means: ByJudge, source: str) -> dict[str, Any]:
    """Return a leaderboard as a JSON object, with the means of each judge."""
    judges = sorted(means)
    return {
        "source": source,
        "rule": RULE,
        "judges": judges,
        "max_borda": len(judges) * (len(places) - 1),
        "systems": [
            {
                **asdict(place),
                "judges": {judge: means[judge][place.system]._asdict() for judge in judges},
            }
            for place in places
        ],
    }
