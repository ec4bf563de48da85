"""Tiny bundles, a scorer on one of them, a file of pairs, and Chromium, for the tests of all folders.

The packages are imported in the fixtures: `make llama` has an environment without `vcs_export`'s libraries.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vcs_runtime import Scorer

# pytest-xdist sets it for its processes, and commands would break their lines there.
os.environ.pop("COLUMNS", None)

# Some tests import ONNX Runtime or OpenVINO themselves.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

# Tests that ask for one of these fixtures are left to `make test-all`.
SLOW_FIXTURES = {"cluster": "ray", "browser": "browser", "built": "toolchain"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in SLOW_FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(SLOW_FIXTURES[fixture])
            item.add_marker(pytest.mark.xdist_group(fixture))  # one process starts it, for all tests of it


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with an embedder and the rules of English."""
    from support.tiny_bert import build_tiny_bundle

    return build_tiny_bundle(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def sat_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a learned segmenter alone; its checkpoint lies beside it."""
    from support.tiny_sat import build_tiny_sat_bundle

    return build_tiny_sat_bundle(tmp_path_factory.mktemp("sat"))


@pytest.fixture(scope="session")
def mixed_bundle(sat_bundle: Path) -> Path:
    """A bundle with the rules of English and the learned segmenter of `sat_bundle`."""
    from vcs_export.families.sat import build_sat_bundle
    from vcs_export.write import BundleInfo
    from vcs_runtime.bundle.manifest import RulesSpec

    return build_sat_bundle(
        sat_bundle.parent / "checkpoint",
        sat_bundle.parent / "mixed",
        BundleInfo("tiny-sat", "CC0-1.0", "random numbers"),
        threshold=0.25,
        rules=RulesSpec("sentencex", "en"),
    )


@pytest.fixture(scope="session")
def scorer(tiny_bundle: Path) -> Iterator[Scorer]:
    """A scorer of `tiny_bundle` on the CPU."""
    from vcs_runtime import Scorer

    with Scorer.open(tiny_bundle, device="cpu") as opened:
        yield opened


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Twelve pairs that can be scored; each reference belongs to three of them."""
    from support.stories import story, write_pairs

    path = tmp_path / "pairs.jsonl"
    write_pairs(path, [{"id": i, "reference": story(i // 3), "generated": story(100 + i)} for i in range(12)])
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()
