"""What the base install holds, and how large and dense the project may become."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from vcs_runtime.cli import cli

ROOT = Path(__file__).parents[1]


def test_the_base_install_pulls_nothing_heavy_and_pins_nothing_from_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in [
        *project["dependencies"],
        *extras["cpu"],
        *extras["gpu"],
        *extras["default"],
    ]:
        name = requirement.split(">=")[0].split("[")[0]
        assert name not in {
            "torch",
            "transformers",
            "optimum",
            "sentence-transformers",
            "onnxruntime-cuda",
        }
        assert ">=" in requirement
        assert "<" not in requirement
        assert "==" not in requirement


def test_no_extra_but_the_one_of_the_oracles_pulls_pytorch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert "torch>=2.4" in extras.pop("parity")
    names = {
        re.split(r"[<>=\[]", requirement)[0] for extra in extras.values() for requirement in extra
    }
    # What these bring beside themselves was looked up: torch is in none of them.
    assert {"tensorrt-rtx-cu13-libs", "onnxruntime-gpu", "ray"} <= names
    pulls_pytorch = {
        "torch",
        "transformers",
        "optimum",
        "optimum-onnx",
        "accelerate",
        "sentence-transformers",
    }
    assert not names & pulls_pytorch


class Size(NamedTuple):
    """Lines of Python files; `code` are those that are no docstring, no comment and not blank."""

    lines: int = 0
    code: int = 0
    docstrings: int = 0


@cache
def size_of(path: Path) -> Size:
    text = path.read_text("utf-8")
    held = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [
        node.body[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, held) and ast.get_docstring(node, False)
    ]
    inside = {number for node in first for number in range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = text.splitlines()
    code = [
        line
        for number, line in enumerate(lines, 1)
        if number not in inside and line.split("#")[0].strip()
    ]
    return Size(len(lines), len(code), len(inside))


def sizes(*folders: str) -> dict[Path, Size]:
    return {path: size_of(path) for folder in folders for path in (ROOT / folder).rglob("*.py")}


def total(found: dict[Path, Size]) -> Size:
    return Size(*map(sum, zip(*found.values(), strict=True)))


def words(*pages: Path) -> int:
    """Words of pages, without fenced blocks, tables and comments."""
    prose = "".join(
        re.sub(
            r"^\s*```.*?^\s*```|^(?:\||<!--).*?$", "", page.read_text("utf-8"), flags=re.M | re.S
        )
        for page in pages
    )
    return len(prose.split())


def commands(command: click.Command) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    with click.Context(command) as context:
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                yield from commands(inner)


def density(code: int) -> dict[str, float]:
    """Return counts of what makes the packages slow to read, beside their lines of code."""
    counts = dict.fromkeys(("long lines", "exceptions", "parameters", "comprehensions", "truth"), 0)
    for path in sizes("vcs_numba", "runtime", "export"):
        text = path.read_text("utf-8")
        counts["long lines"] += sum(len(line) > 100 for line in text.splitlines())
        counts["exceptions"] += len(re.findall(r"# fmt: *(?:skip|off)", text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                counts["parameters"] += parameters(node.args) >= 8
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                counts["comprehensions"] += 1
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
                counts["truth"] += is_truth(node.left) or is_truth(node.right)
    return {
        "lines over 100 columns": counts["long lines"],
        "exceptions from the formatter": counts["exceptions"],
        "functions with eight or more parameters": counts["parameters"],
        "comprehensions in 100 lines of code": 100 * counts["comprehensions"] / code,
        "sums and products with truth values": counts["truth"],
    }


def parameters(arguments: ast.arguments) -> int:
    """Count the parameters of a function, without `self` and `cls`."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in named)


def is_truth(node: ast.expr) -> bool:
    """Whether an expression is true or false by its form, as a comparison or `bool(x)` is."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "bool"
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.Compare | ast.BoolOp)


@cache
def measured() -> dict[str, float]:
    packages, benchmarks = total(sizes("vcs_numba", "runtime", "export")), sizes("benchmarks")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    leaves = list(commands(cli))
    return {
        "lines of the packages": packages.lines,
        "code lines of the packages": packages.code,
        "share of docstrings in the packages": packages.docstrings / packages.lines,
        **density(packages.code),
        "lines of benchmarks": total(benchmarks).lines,
        "scripts of benchmarks": sum(path.name != "__init__.py" for path in benchmarks),
        "lines of tests": total(sizes("tests")).lines,
        "words of the manual": words(*pages),
        "words of pages of benchmarks": words(
            *(page for page in pages if "benchmarks" in page.parts)
        ),
        "commands": len(leaves),
        "options, once a command": sum(
            isinstance(each, click.Option) for leaf in leaves for each in leaf.params
        ),
        "targets of make": len(re.findall(r"^[a-z][a-z-]*:", makefile, re.M)),
        "environments that make builds": len(
            set(re.findall(r"^(?:\$\(VENV\)|\.venv-[a-z]+)(?=/)", makefile, re.M))
        ),
    }


#: What a maintainer has to read, at most, and how dense it is: a new room replaces an old one
#: (CONTRIBUTING.md). Lines are those of the formatter at 100 columns, which has no exceptions.
#: Figures only fall. Some are above their goals, which stand behind them: readability decides, and
#: lines follow. One statement a line, plain `if`/`else` and objects in place of long parameter
#: lists took 1,900 lines of the packages; sentences inside marks, what models leave in texts, timed
#: captions and files of others took 1,500; proofs 550, fitness and calibration 450, what the first
#: hour showed 400, the int8 tier 130. `--no-proof` and `--calibrated` are options of eleven commands each. Proofs,
#: fitness, upgrades and how far to trust a score took 250 words.
BUDGETS = {
    "lines of the packages": 57_155,  # goal: 50,000
    "code lines of the packages": 39_635,  # goal: 36,000
    "share of docstrings in the packages": 0.152,
    "lines over 100 columns": 0,
    "exceptions from the formatter": 0,
    "functions with eight or more parameters": 7,
    "comprehensions in 100 lines of code": 3.2,
    "sums and products with truth values": 0,
    "lines of benchmarks": 5_961,  # goal: 5,400; most is in what a rented GPU runs once
    "scripts of benchmarks": 21,
    "lines of tests": 60_240,  # goal: 53,000; tests wait for events, and have a row for each case
    "words of the manual": 24_330,  # goal: 24,000
    "words of pages of benchmarks": 3_850,
    "commands": 39,  # goal: 37
    "options, once a command": 510,  # goal: 470
    "targets of make": 14,
    "environments that make builds": 4,
}


@pytest.mark.xdist_group("budgets")  # which are measured once a process
@pytest.mark.parametrize("what", BUDGETS)
def test_the_project_keeps_to_its_budgets(what: str) -> None:
    assert measured()[what] <= BUDGETS[what]


def test_no_module_has_more_than_four_hundred_lines_of_code() -> None:
    found = sizes("vcs_numba", "runtime", "export")
    assert found
    assert [path for path, size in found.items() if size.code > 400] == []
