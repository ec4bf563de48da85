"""Tiny bundles, a scorer on one of them, a file of pairs, and Chromium, for the tests of all folders.

The source archive can be tested with few libraries: what needs others is skipped, by the tables below. So a
`conftest.py` imports libraries of extras in its fixtures.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

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

#: The libraries that build a bundle.
BUILD = "onnx_ir safetensors"
#: What extras and the group `test` bring, and all tests of a folder or module need.
NEEDS = {
    "attack": f"{BUILD} onnx python_calamine pyarrow starlette uvicorn",
    "benchmarks": BUILD,
    "benchmarks/test_substitution.py": "scipy",
    "bundle/test_archive.py": BUILD,
    "bundle/test_hostile_bundles.py": f"{BUILD} onnx",
    "bundle/test_schema.py": "jsonschema",
    "capi/test_calls.py": "sentencex",
    "cli/test_doctor.py": f"{BUILD} openvino sentencex",
    "cli/test_help.py": BUILD,
    "cli/test_language.py": BUILD,
    "comparing": f"{BUILD} scipy",
    "compat/test_pictures.py": "matplotlib",
    "compat/test_score.py": "sentencex",
    "core/test_properties.py": "hypothesis",
    "docs/test_adding_a_decoder_page.py": BUILD,
    "docs/test_blocks.py": "sentencex",
    "docs/test_export_page.py": BUILD,
    "docs/test_models_page.py": BUILD,
    "docs/test_reference.py": f"{BUILD} starlette uvicorn",
    "experiments": f"{BUILD} nltk onnx rouge_score scipy",
    "export": f"{BUILD} onnx",
    "inference": f"{BUILD} hypothesis onnx",
    "jobs/test_gpu_jobs.py": "onnx",
    "kit": "cyclonedx packaging",
    "ray": "ray",
    "report/test_overview.py": "matplotlib",
    "report/test_pdf.py": "matplotlib",
    "report/test_report.py": "matplotlib",
    "scoring/test_default_bundle.py": "sentencex",
    "scoring/test_isolation.py": "sentencex",
    "scoring/test_signature.py": f"{BUILD} onnx",
    "scoring/test_stages.py": "onnx",
    "segmentation": f"{BUILD} hypothesis onnx",
    "serve": "starlette uvicorn",
    "test_project.py": "yaml",
    "test_references.py": f"{BUILD} starlette uvicorn",
    "text": "hypothesis",
    "training/test_rewards.py": "sentencex",
    "visil/test_docs.py": "onnxruntime_genai",
    "visil/test_end_to_end.py": "onnxruntime_genai",
    "visil/test_genai.py": "onnx_ir onnxruntime_genai",
    "visil/test_formats.py": "matplotlib",
    "visil/test_generate.py": "onnx_ir onnxruntime_genai",
    "visil/test_golden.py": "scipy",
    "visil/test_parts.py": "scipy",
    "visil/test_steps.py": "av onnxruntime_genai scipy",
    "words/test_vectors.py": BUILD,
}
#: What all tests need that ask for a fixture.
FIXTURE_NEEDS = {
    "tiny_bundle": BUILD,
    "sat_bundle": BUILD,
    "text_model": "onnx_ir onnxruntime_genai",
    "vision_model": "onnx_ir onnxruntime_genai",
    "tiny_writer": "onnx_ir onnxruntime_genai",
}


def missing(libraries: str) -> list[str]:
    return [name for name in sorted(set(libraries.split())) if importlib.util.find_spec(name) is None]


def missing_for(path: Path) -> list[str]:
    """The libraries that a module's tests need and that are not installed."""
    place = PurePosixPath(path.relative_to(Path(__file__).parent).as_posix())
    return missing(" ".join({NEEDS.get(str(part), "") for part in (place, *place.parents)}))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--complete", action="store_true", help="refuse to start where a library is missing that tests need"
    )


def pytest_report_header(config: pytest.Config) -> str:
    lacking = missing(" ".join({*NEEDS.values(), *FIXTURE_NEEDS.values()}))
    if not lacking:
        return "libraries: all that tests need"
    return f"libraries: tests that need {', '.join(lacking)} are skipped"


def pytest_configure(config: pytest.Config) -> None:
    lacking = missing(" ".join({*NEEDS.values(), *FIXTURE_NEEDS.values()}))
    if lacking and config.getoption("complete"):
        raise pytest.UsageError(f"--complete: not installed: {', '.join(lacking)}")
    with suppress(ImportError):
        from hypothesis import settings

        # Tests never measure time: on a busy machine any example may take long.
        settings.register_profile("untimed", deadline=None)
        settings.load_profile("untimed")


class Lacking(pytest.Module):
    """A module that is not imported, since a library of its tests is missing."""

    def collect(self) -> NoReturn:
        pytest.skip(f"needs {', '.join(missing_for(self.path))}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Lacking.from_parent(parent, path=module_path) if missing_for(module_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked = FIXTURE_NEEDS.keys() & set(getattr(item, "fixturenames", ()))
        if lacking := missing(" ".join({FIXTURE_NEEDS[fixture] for fixture in asked})):
            item.add_marker(pytest.mark.skip(f"needs {', '.join(lacking)}"))
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
    from vcs_export.families.build import Build
    from vcs_export.families.sat import SatOptions, build_sat_bundle
    from vcs_export.write import BundleInfo
    from vcs_runtime.bundle.manifest import RulesSpec

    build = Build(
        sat_bundle.parent / "checkpoint",
        sat_bundle.parent / "mixed",
        BundleInfo("tiny-sat", "CC0-1.0", "random numbers"),
        rules=RulesSpec("sentencex", "en"),
    )
    return build_sat_bundle(build, SatOptions(threshold=0.25))


@pytest.fixture(scope="session")
def whole_bundle(tiny_bundle: Path, mixed_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with the embedder of `tiny_bundle`, and both segmenters of `mixed_bundle`."""
    from vcs_runtime.bundle.merge import merge

    folder = tmp_path_factory.mktemp("whole") / "bundle"
    merge(tiny_bundle, mixed_bundle, folder, name="whole")
    return folder


@pytest.fixture(scope="session")
def scorer(tiny_bundle: Path) -> Iterator[Scorer]:
    """A scorer of `tiny_bundle` on the CPU, which compares words by it, too."""
    from vcs_runtime import Scorer

    with Scorer.open(tiny_bundle, device="cpu", words=tiny_bundle) as opened:
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
