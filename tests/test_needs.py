"""Where libraries of extras are missing, tests are skipped and pytest says so; `make test` skips nothing for that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import HANGS_AFTER_S

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
# A stand-in for an environment without some libraries.
WITHOUT = """
import importlib.machinery, json, sys
gone, arguments = json.loads(sys.argv[1])
found = importlib.machinery.PathFinder.find_spec
class Find:
    def __call__(self, name, *rest):
        return None if name.partition(".")[0] in gone else found(name, *rest)
importlib.machinery.PathFinder.find_spec = Find()
import pytest  # it keeps what finds modules
sys.exit(pytest.main(["-p", "no:cacheprovider", "-p", "no:xdist", *arguments]))
"""


def pytest_without(gone: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, json.dumps([gone, arguments])]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False
    )


def test_what_needs_a_library_is_skipped_and_the_rest_is_run() -> None:
    tests = ("tests/util/test_lru.py", "tests/bundle/test_archive.py", "tests/scoring/test_columns.py", "-rs")
    done = pytest_without(["safetensors"], *tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests that need safetensors are skipped" in done.stdout
    assert "needs safetensors" in done.stdout
    assert " passed" in done.stdout


def test_a_module_that_cannot_be_imported_is_skipped_and_a_failure_without_a_reason_is_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_x.py").write_text("import scipy\n\ndef test_x():\n    pass\n")
    (tmp_path / "test_y.py").write_text("def test_y():\n    assert False\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text("utf-8"), "utf-8")
    done = pytest_without(["scipy"], str(tmp_path), "-rs", "-c", "/dev/null", "--rootdir", str(tmp_path))
    assert "1 failed, 1 skipped" in done.stdout, done.stdout
    assert "needs scipy" in done.stdout


def test_a_complete_run_refuses_to_start_without_a_library() -> None:
    assert (
        "--complete" in (ROOT / "Makefile").read_text("utf-8").partition("PYTEST := ")[2].partition("\n")[0]
    )
    done = pytest_without(["onnx"], "--complete", "tests/util/test_lru.py")
    assert done.returncode == 4, done.stdout
    assert "--complete: not installed: onnx" in done.stderr
