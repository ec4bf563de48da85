"""A few cases of every quick door with a fixed seed; `make attack` has the rest, with fresh ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from attack.cases import Door, Ground, UnavailableError, case_random, run_cases
from attack.doors import DOORS

SEED = 20
#: How many cases of each door `make test` performs, some seconds in all.
CASES = {"files": 25, "arguments": 40, "results": 20, "api": 150, "core": 300, "server": 80, "bundles": 25}
#: What `make test-all` adds: doors that start processes, compile C, or open a browser.
SLOW = {"kills": 3, "disturbances": 4, "writers": 2, "specials": 6, "fork": 3, "pages": 4, "capi": 150}


@pytest.mark.parametrize(
    "door",
    [
        pytest.param(door, id=door.name, marks=[pytest.mark.slow] * (door.name in SLOW))
        for door in DOORS
        if door.name in CASES | SLOW
    ],
)
def test_an_attack_finds_nothing(door: Door, tiny_bundle: Path, tmp_path: Path) -> None:
    cases = (CASES | SLOW)[door.name]
    begun: list[int] = []
    try:
        findings = list(run_cases(door, Ground(tiny_bundle, tmp_path), SEED, cases=cases, begun=begun.append))
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert not findings, "\n".join(f"{finding.complaint}\n{finding.repeat}" for finding in findings)
    assert begun == list(range(cases + 1))


def test_a_case_depends_on_nothing_but_its_seed() -> None:
    drawn = [case_random(1, "files", case).random() for case in range(3)]
    assert len(set(drawn)) == 3
    assert drawn == [case_random(1, "files", case).random() for case in range(3)]
    assert case_random(1, "api", 0).random() != drawn[0]
    assert case_random(2, "files", 0).random() != drawn[0]


def test_a_door_without_time_performs_one_case(tiny_bundle: Path, tmp_path: Path) -> None:
    [door] = [door for door in DOORS if door.name == "core"]
    begun: list[int] = []
    assert not list(run_cases(door, Ground(tiny_bundle, tmp_path), SEED, seconds=0, begun=begun.append))
    assert begun == [0, 1]
