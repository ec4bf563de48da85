"""Every promise of docs/reference/promises.md names tests that exist and run."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/reference/promises.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| promise")
]


def named() -> list[tuple[str, str]]:
    tests = [test for row in ROWS for test in re.findall(r"`(tests/[\w/]+\.py::\w+)`", row[-1])]
    return [(path, name) for path, _, name in (test.partition("::") for test in tests)]


def test_every_promise_has_a_figure_or_none_and_a_test() -> None:
    assert len(ROWS) >= 30
    assert [row for row in ROWS if len(row) != 3 or not row[0].endswith(".") or "::test_" not in row[2]] == []


def test_every_test_that_is_named_exists() -> None:
    functions = {
        path: {
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
            if isinstance(node, ast.FunctionDef)
        }
        for path, _ in named()
    }
    assert [(path, name) for path, name in named() if name not in functions[path]] == []


def test_the_tests_that_are_named_are_run_with_all_others() -> None:
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"][
        "testpaths"
    ]
    assert [
        path for path, _ in named() if not any(path == f or path.startswith(f"{f}/") for f in folders)
    ] == []
