"""The leaderboard of CLIP-CC-Bench: Borda points over several judges (docs/guide/clip-cc-bench.md).

Source: `tools/build_leaderboard.py` of the benchmark, 2026-08-21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from vcs_runtime.errors import InputError
from vcs_runtime.util.numbers import exact_means

#: How systems are ranked.
RULE = (
    "a judge gives a system one point for each system with a lower mean HM-CF; systems are ranked"
    " by the sum of points, then by the mean HM-CF over judges"
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
    systems = sorted(set().union(*means.values()))
    points: dict[str, dict[str, int]] = {system: {} for system in systems}
    for judge in sorted(means):
        by_system = means[judge]
        missing = [system for system in systems if system not in by_system]
        if missing:
            raise InputError(f"judge {judge}: no results of {', '.join(missing)}")
        ordered = sorted((by_system[system].hm_cf, system) for system in systems)
        for lower, (hm_cf, system) in enumerate(ordered):
            if lower and hm_cf == ordered[lower - 1][0]:
                raise InputError(
                    f"judge {judge}: {ordered[lower - 1][1]} and {system} have the same mean"
                    f" HM-CF, {hm_cf}, and the benchmark's rule does not order equal means"
                )
            points[system][judge] = lower
    places = []
    for system in systems:
        # Exactly rounded sums, as Python's `sum` since 3.12, which made the benchmark's table.
        average = Means(*exact_means([by_system[system] for by_system in means.values()]))
        places.append(
            Place(
                0,
                system,
                names.get(system, system),
                sum(points[system].values()),
                average.hm_cf,
                average.coarse,
                average.fine_f1,
                points[system],
            )
        )
    places.sort(key=attrgetter("borda", "mean_hm_cf"), reverse=True)
    return [replace(place, rank=rank) for rank, place in enumerate(places, 1)]


def document(places: list[Place], means: ByJudge, source: str) -> dict[str, Any]:
    """Return a leaderboard as a JSON object, with the means of each judge."""
    judges = sorted(means)
    systems = []
    for place in places:
        by_judge = {judge: means[judge][place.system]._asdict() for judge in judges}
        systems.append({**asdict(place), "judges": by_judge})
    return {
        "source": source,
        "rule": RULE,
        "judges": judges,
        "max_borda": len(judges) * (len(places) - 1),
        "systems": systems,
    }
