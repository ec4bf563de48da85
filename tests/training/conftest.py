"""A tiny bundle; nothing that a test opened is left to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tiny_bert import build_tiny_bundle
from vcs_runtime import Scorer, training


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_bundle(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def scorer(bundle: Path) -> Iterator[Scorer]:
    """What all numbers are compared with."""
    with Scorer.open(bundle, "cpu") as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    training.close()
