"""What the attacks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

#: Puts what the second function makes of a function in its place.
Plant = Callable[[str, Callable[[Any], Any]], None]


@pytest.fixture
def engine(tiny_bundle: Path) -> tuple[str, ...]:
    return ("--bundle", str(tiny_bundle), "--device", "cpu")


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Plant a defect: a check that cannot fail would find nothing either."""

    def put(target: str, make: Callable[[Any], Any]) -> None:
        owner, _, name = target.rpartition(".")
        held = resolve_name(owner)
        monkeypatch.setattr(held, name, make(getattr(held, name)))

    return put


@pytest.fixture(autouse=True, scope="package")
def bounded_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """In `make attack`, let an attack on memory end in an error of this process, not in that of another."""
    with suppress(ImportError):
        import resource

        limits = resource.getrlimit(resource.RLIMIT_AS)
        if request.config.getoption("--hypothesis-profile", None) == "attack":
            resource.setrlimit(resource.RLIMIT_AS, (12 << 30, limits[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, limits)
        return
    yield
