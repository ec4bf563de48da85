"""Who may import what, at module level."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWN = {"vcs_numba", "vcs_runtime", "vcs_export"}
PACKAGES = {
    "vcs_numba": (ROOT / "vcs_numba", {"numpy", "numba"}, {"vcs_numba"}),
    "vcs_runtime": (
        ROOT / "runtime/vcs_runtime",
        {"numpy", "tokenizers", "click", "rich"},
        {"vcs_runtime", "vcs_numba"},
    ),
    "vcs_export": (
        ROOT / "export/vcs_export",
        {"numpy", "onnx_ir", "safetensors", "tokenizers", "onnxruntime", "click"},
        {"vcs_export", "vcs_runtime"},
    ),
}


def module_level_imports(path: Path) -> Iterator[str]:
    """Imports that run when the module is imported; those for type checkers do not."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_keep_to_the_architecture(package: str) -> None:
    import sys

    folder, third_party, own = PACKAGES[package]
    for path in folder.rglob("*.py"):
        for name in module_level_imports(path):
            top = name.split(".")[0]
            assert top in own | third_party or top in sys.stdlib_module_names, f"{path} imports {name}"


def test_the_base_install_pulls_nothing_heavy_and_pins_nothing_from_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *extras["cpu"], *extras["gpu"], *extras["default"]]:
        name = requirement.split(">=")[0].split("[")[0]
        assert name not in {"torch", "transformers", "optimum", "sentence-transformers", "onnxruntime-cuda"}
        assert ">=" in requirement
        assert "<" not in requirement
        assert "==" not in requirement


def test_modules_are_of_a_readable_size() -> None:
    for folder, _, _ in PACKAGES.values():
        for path in folder.rglob("*.py"):
            assert len(path.read_text("utf-8").splitlines()) <= 450, path
