"""Tables of the manual whose last cell names the tests behind a row."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]


def rows(page: str) -> list[list[str]]:
    """The cells of every row of a page's tables, without heads."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    heads = {number - 1 for number, line in enumerate(lines) if re.fullmatch(r"\|[-|: ]+\|", line)}
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for number, line in enumerate(lines)
        if line.startswith("| ") and number not in heads
    ]


def named_in(cell: str) -> list[tuple[str, str]]:
    """The files and names of the tests that a cell names."""
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cell)


@cache
def functions(path: str) -> set[str]:
    """The functions of a file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def missing(named: list[tuple[str, str]]) -> list[str]:
    """The tests that do not exist."""
    return [
        f"{path}::{name}" for path, name in named if not (ROOT / path).exists() or name not in functions(path)
    ]


def run_with_all_others(path: str) -> bool:
    """Whether `make test-all` runs a file."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    return any(path == folder or path.startswith(f"{folder}/") for folder in settings["testpaths"])
