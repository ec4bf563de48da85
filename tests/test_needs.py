"""Where libraries of extras are missing, tests are skipped and pytest says so; `make test` skips nothing for that."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLES = runpy.run_path(str(ROOT / "tests/conftest.py"))
LIBRARIES = sorted(set(" ".join([*TABLES["NEEDS"].values(), *TABLES["FIXTURE_NEEDS"].values()]).split()))
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
sys.exit(pytest.main(arguments))
"""


def pytest_without(gone: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        WITHOUT,
        json.dumps([gone, ["-p", "no:cacheprovider", "-p", "no:xdist", *arguments]]),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_every_path_of_the_tables_exists() -> None:
    assert [path for path in TABLES["NEEDS"] if not (ROOT / "tests" / path).exists()] == []


def test_without_the_extras_all_tests_are_collected_or_skipped() -> None:
    done = pytest_without(LIBRARIES, "--collect-only", "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert f"libraries: tests that need {', '.join(LIBRARIES)} are skipped" in done.stdout
    assert "needs onnx, onnx_ir, safetensors" in done.stdout


def test_what_needs_a_library_is_skipped_and_the_rest_is_run() -> None:
    done = pytest_without(
        ["safetensors"],
        "tests/util/test_lru.py",
        "tests/bundle/test_archive.py",
        "tests/scoring/test_columns.py",
        "-rs",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("needs (onnx_ir, )?safetensors", done.stdout)
    assert "passed" in done.stdout


def test_a_complete_run_refuses_to_start_without_a_library() -> None:
    done = pytest_without(["onnx"], "--complete", "tests/util/test_lru.py")
    assert done.returncode == 4, done.stdout
    assert "--complete: not installed: " in done.stderr
    assert "onnx" in done.stderr


def test_a_complete_run_starts_where_all_is_installed() -> None:
    if lacking := TABLES["missing"](" ".join(LIBRARIES)):
        pytest.skip(f"needs {', '.join(lacking)}")
    done = pytest_without([], "--complete", "tests/util/test_lru.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_make_runs_complete_tests() -> None:
    assert (
        "--complete" in (ROOT / "Makefile").read_text("utf-8").partition("PYTEST := ")[2].partition("\n")[0]
    )
