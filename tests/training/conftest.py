"""A config on a tiny bundle; every test closes the sessions that it opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vcs_runtime import ScorerConfig, training


@pytest.fixture(scope="session")
def config(tiny_bundle: Path) -> ScorerConfig:
    return ScorerConfig(tiny_bundle, "cpu")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    training.close()
