"""Tiny bundles, a scorer on one of them, a file of pairs, and Chromium, for the tests of all
folders.

The source archive can be tested with few libraries. A test that fails where it asked for a missing
one is skipped, so a `conftest.py` imports libraries of extras in its fixtures.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.waiting import HANGS_AFTER_S

if TYPE_CHECKING:
    from vcs_runtime import Scorer

# pytest-xdist sets it for its processes, and commands would break their lines there.
os.environ.pop("COLUMNS", None)

# No test takes or leaves vectors in the folder of the user who runs it.
os.environ["VCS_RUNTIME_CACHE"] = "none"

# Some tests import ONNX Runtime or OpenVINO themselves.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

# Where oneDNN must act as on an older processor, so must OpenVINO.
if "ONEDNN_MAX_CPU_ISA" in os.environ:
    os.environ.setdefault("OV_CPU_MAX_ISA", os.environ["ONEDNN_MAX_CPU_ISA"])

# Tests that ask for one of these fixtures are left to `make test-all`.
SLOW_FIXTURES = {"cluster": "ray", "browser": "browser", "built": "toolchain"}

#: What extras and the group `test` bring, and tests need.
LIBRARIES = (
    "av cyclonedx hypothesis jsonschema matplotlib nltk onnx onnx_ir onnxruntime_genai openvino"
    " packaging pyarrow python_calamine ray rouge_score safetensors scipy sentencex starlette"
    " uvicorn yaml"
).split()


class MissedLibraries(MetaPathFinder):
    """Notes missing libraries: Python asks the last finder for what no other one has."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.errors: list[BaseException] = []  # of fixtures, which many tests get

    def find_spec(self, name: str, *_: object) -> None:
        if name in LIBRARIES:
            self.names.add(name)

    def excuse(self, report: Any, path: Path, error: BaseException | None = None) -> None:
        """Make a failure a skip if a library was missing."""
        if report.failed and (self.names or error in self.errors):
            report.outcome = "skipped"
            report.longrepr = (
                str(path),
                None,
                f"Skipped: needs {', '.join(sorted(self.names)) or error}",
            )
            if error is not None:
                self.errors.append(error)


_missed = MissedLibraries()
sys.meta_path.append(_missed)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--complete",
        action="store_true",
        help="refuse to start where a library is missing that tests need",
    )


def missing() -> list[str]:
    return [name for name in LIBRARIES if importlib.util.find_spec(name) is None]


def pytest_report_header(config: pytest.Config) -> str:
    lacking = missing()
    return (
        f"libraries: tests that need {', '.join(lacking)} are skipped"
        if lacking
        else "libraries: all that tests need"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("complete") and (lacking := missing()):
        raise pytest.UsageError(f"--complete: not installed: {', '.join(lacking)}")
    with suppress(ImportError):
        from hypothesis import HealthCheck, settings

        # Tests never measure time: on a busy machine any example may take long.
        patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.register_profile("untimed", patient)
        settings.register_profile("attack", patient, max_examples=3000, print_blob=True)
        settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    _missed.names.clear()
    report = yield
    _missed.excuse(report, collector.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    _missed.names.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    _missed.excuse(report, item.path, call.excinfo.value if call.excinfo else None)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in SLOW_FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(SLOW_FIXTURES[fixture])
            # One process starts it, for all tests of it.
            item.add_marker(pytest.mark.xdist_group(fixture))


@pytest.fixture(scope="session", autouse=True)
def no_lines_of_progress() -> Iterator[None]:
    """Switch off the progress lines of long work, which only a slow machine would print."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vcs_runtime.util.progress.EVERY", math.inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_records_of_proofs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Record proofs in a folder of the tests, not of the user who runs them."""
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch, suppress(ImportError):
        from vcs_runtime.inference import proof

        patch.setattr(proof, "record_folder", lambda name: folder / name)
        yield
        return
    yield


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
def whole_bundle(
    tiny_bundle: Path, mixed_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
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
def score(tiny_bundle: Path) -> Callable[..., Any]:
    """Run `vcs-runtime score` with `tiny_bundle` on the CPU."""
    from support.command_line import vcs

    options = ("--bundle", tiny_bundle, "--words", tiny_bundle, "--device", "cpu")
    return lambda *arguments: vcs("score", *arguments, *options)


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Any]]:
    """Record the positional arguments of every call of a function, `owner.name`, from now on."""

    def watch(owner: Any, name: str) -> list[Any]:
        calls: list[Any] = []
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *given, **named: (calls.append(given), real(*given, **named))[1]
        )
        return calls

    return watch


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Twelve pairs that can be scored; each reference belongs to three of them."""
    from support.stories import story, write_pairs

    path = tmp_path / "pairs.jsonl"
    rows = [{"id": i, "reference": story(i // 3), "generated": story(100 + i)} for i in range(12)]
    write_pairs(path, rows)
    return path


#: Milliseconds after which a browser hangs; Playwright's own 30 seconds are few on a busy machine.
PATIENCE_MS = 1000 * HANGS_AFTER_S


class PatientBrowser:
    """A browser whose pages wait for what is asked of them until it happens."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def new_context(self, **options: Any) -> Any:
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        return context

    def new_page(self, **options: Any) -> Any:
        page = self._browser.new_page(**options)
        page.set_default_timeout(PATIENCE_MS)
        return page


@pytest.fixture(scope="module")
def browser() -> Iterator[PatientBrowser]:
    program = (
        shutil.which("chromium")
        or shutil.which("google-chrome")
        or shutil.which("chromium-browser")
    )
    if program is None:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        yield PatientBrowser(opened)
        opened.close()
