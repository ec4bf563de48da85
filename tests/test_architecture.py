"""What the base install holds, and how long modules are; `make lint` knows who may import whom."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("vcs_numba", "runtime", "export/vcs_export")


def test_the_base_install_pulls_nothing_heavy_and_pins_nothing_from_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *extras["cpu"], *extras["gpu"], *extras["default"]]:
        name = requirement.split(">=")[0].split("[")[0]
        assert name not in {"torch", "transformers", "optimum", "sentence-transformers", "onnxruntime-cuda"}
        assert ">=" in requirement
        assert "<" not in requirement
        assert "==" not in requirement


def test_no_extra_but_the_one_of_the_oracles_pulls_pytorch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert "torch>=2.4" in extras.pop("parity")
    names = {re.split(r"[<>=\[]", requirement)[0] for extra in extras.values() for requirement in extra}
    # What these bring beside themselves was looked up: torch is in none of them.
    assert {"tensorrt-cu13", "onnxruntime-gpu", "ray"} <= names
    pulls_pytorch = {
        "torch",
        "transformers",
        "optimum",
        "optimum-onnx",
        "accelerate",
        "sentence-transformers",
    }
    assert not names & pulls_pytorch


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_longer_than_four_hundred_lines(package: str) -> None:
    modules = {path: len(path.read_text("utf-8").splitlines()) for path in (ROOT / package).rglob("*.py")}
    assert modules
    assert {str(path): lines for path, lines in modules.items() if lines > 400} == {}
