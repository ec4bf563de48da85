"""Tiny bundles, and a scorer on one of them, for all runtime tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stories import story, write_pairs
from support.tiny_bert import build_tiny_bundle
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.families.sat import build_sat_bundle
from vcs_runtime import Scorer
from vcs_runtime.bundle.manifest import RulesSpec


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_bundle(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def sat_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a boundary model alone."""
    return build_tiny_sat_bundle(tmp_path_factory.mktemp("sat"))


@pytest.fixture(scope="session")
def mixed_bundle(sat_bundle: Path) -> Path:
    """A bundle with rules and the same boundary model."""
    return build_sat_bundle(
        sat_bundle.parent / "checkpoint",
        sat_bundle.parent / "mixed",
        name="tiny-sat",
        threshold=0.25,
        licence="CC0-1.0",
        source="random numbers",
        rules=RulesSpec("sentencex", "en"),
    )


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
