"""Cases of an attack: each has a seed of its own, so that any one can be repeated alone."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

Attack = Callable[[random.Random, Path], list[str]]
"""Performs one case in an empty folder; returns what was wrong, one sentence each."""


class UnavailableError(Exception):
    """A door that this machine does not have, such as a browser. The message says why."""


@dataclass(frozen=True)
class Ground:
    """What the doors share: a tiny bundle with its checkpoint beside it, and a folder to work in."""

    bundle: Path
    folder: Path

    @property
    def engine(self) -> tuple[str, ...]:
        return ("--bundle", str(self.bundle), "--device", "cpu")


@dataclass(frozen=True)
class Door:
    """A way into the product.

    name   as in the table
    share  of the time, in relation to the other doors
    about  what is attacked, in a few words
    open   makes ready what all cases need; raises UnavailableError
    """

    name: str
    share: int
    about: str
    open: Callable[[Ground], AbstractContextManager[Attack]]


@dataclass(frozen=True)
class Finding:
    """What a case found."""

    door: str
    seed: int
    case: int
    complaint: str

    @property
    def repeat(self) -> str:
        return f'make attack ARGS="--door {self.door} --seed {self.seed} --case {self.case}"'


def case_random(seed: int, door: str, case: int) -> random.Random:
    """The numbers that a case draws: they depend on nothing but these three."""
    return random.Random(f"{seed}/{door}/{case}")


def run_cases(
    door: Door,
    ground: Ground,
    seed: int,
    *,
    first: int = 0,
    cases: int | None = None,
    seconds: float | None = None,
    begun: Callable[[int], None] = lambda case: None,
    keep: bool = False,
) -> Generator[Finding, None, None]:
    """Perform cases from `first` on until so many are done, or the time is over; yields what they find.

    One case is always performed, however long it takes to make ready. `begun` is called with the number of a
    case before it begins, and at the end with the next one. The folder of the last case is kept if asked for.
    """
    end = None if seconds is None else time.monotonic() + seconds
    case = first
    with door.open(ground) as attack:
        while case == first or (
            (cases is None or case < first + cases) and (end is None or time.monotonic() < end)
        ):
            begun(case)
            folder = ground.folder / f"case-{door.name}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            try:
                complaints = attack(case_random(seed, door.name, case), folder)
            except Exception:
                complaints = [f"the case ended in an exception: {traceback.format_exc()}"]
            yield from (Finding(door.name, seed, case, complaint) for complaint in complaints)
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
            case += 1
        begun(case)
