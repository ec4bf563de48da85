"""One tiny bundle and one scorer on it for all runtime tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stories import story, write_pairs
from support.tiny_bert import build_tiny_bundle
from vcs_runtime import Scorer


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_bundle(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def scorer(tiny_bundle: Path) -> Iterator[Scorer]:
    with Scorer.open(tiny_bundle, device="cpu") as opened:
        yield opened


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Twelve good pairs, three of which share a reference."""
    path = tmp_path / "pairs.jsonl"
    write_pairs(path, [{"id": i, "reference": story(i // 3), "generated": story(100 + i)} for i in range(12)])
    return path
