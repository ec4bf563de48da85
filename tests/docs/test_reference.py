"""The reference lists all public names, commands, errors, statuses and environment variables."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.blocks import ROOT
from vcs_numba import Params
from vcs_runtime import Options, Scorer
from vcs_runtime.capi import Status
from vcs_runtime.errors import VcsError
from vcs_runtime.scoring.signature import long_form
from vcs_runtime.serve.openapi import document
from vcs_visil import VisilOptions

REFERENCE = ROOT / "docs/reference"
# Public modules beside the packages with `__all__`; errors have a page.
DOORS = ["vcs_runtime", "vcs_numba", "vcs_visil"]
DOORS += [f"vcs_runtime.{name}" for name in ("capi", "compat", "ray", "report", "training")]


def page(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


@pytest.mark.parametrize("module", DOORS)
def test_every_public_name_is_in_the_python_reference(module: str) -> None:
    text = "".join(path.read_text("utf-8") for path in REFERENCE.glob("*.md"))
    listed = set(re.findall(r"^`([\w.]+)`$", text, re.M))
    listed |= {name.replace("vcs_runtime.errors.", "vcs_runtime.") for name in listed}
    listed |= {name.rpartition(".")[0] for name in listed}  # `recombine` is a module, too
    names = set(importlib.import_module(module).__all__) - {"__version__"}
    if module == "vcs_runtime.capi":  # the functions of the header are on the page of the C API
        names = {name for name in names if not name.lower().startswith("vcs_")}
    missing = {
        name for name in names if f"{module}.{name}" not in listed and f"`{name}`" not in text
    }
    assert missing == set()


def subclasses(cls: type) -> Iterator[type]:
    for inner in cls.__subclasses__():
        yield inner
        yield from subclasses(inner)


def test_every_error_is_in_the_reference() -> None:
    for package in map(
        importlib.import_module, ("vcs_runtime", "vcs_visil", "vcs_experiments", "vcs_export")
    ):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    # The HTTP server's refusal is an answer with a status, which no caller of Python sees.
    names = {f"{cls.__module__}.{cls.__name__}" for cls in subclasses(VcsError)} - {
        "vcs_runtime.serve.messages.Refused"
    }
    assert {name for name in names if f"\n`{name}`\n" not in page("errors.md")} == set()


def test_every_status_is_in_the_reference() -> None:
    rows = re.findall(r"^\| `(VCS_\w+)` \| (\d+) \|", page("errors.md"), re.M)
    assert rows == [(status.name, str(status.value)) for status in Status]
    answers = document("1")["paths"]["/score"]["post"]["responses"]
    assert {
        status for status in answers if not re.search(rf"^\| {status} \|", page("errors.md"), re.M)
    } == set()


def variables(path: Path) -> Iterator[str]:
    """Names of environment variables in the strings of a module, or of a C source."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        strings = [
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        names = [name for name in strings if re.fullmatch(r"[A-Z]+(_\w+)+|CC", name)]
        if "os.environ" in text or any(name.startswith("RAY_") for name in names):
            yield from names
        yield from re.findall(r"numba_config\.(NUMBA_\w+)", text)
    else:
        yield from re.findall(r'(?:get|set|put)env\("(\w+)"', text)


def test_every_environment_variable_is_in_the_reference() -> None:
    sources = [
        path
        for folder in ("runtime", "export/vcs_export", "vcs_numba")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".c")
    ]
    names = {name for path in sources for name in variables(path)}
    assert {"VCS_RUNTIME_HOME", "RAY_worker_niceness", "VCS_RUNTIME_API_KEY", "CC"} <= names
    assert {name for name in names if f"`{name}`" not in page("cli.md")} == set()


def test_every_field_of_signatures_is_in_the_reference(scorer: Scorer) -> None:
    params = Params(lct_penalty="excess", regularizer="length", small_text="reference")
    options = Options(
        params=params, aggregate="mean", clean=("think",), also=("hm-cf", "substitution")
    )
    signature = long_form(scorer.signature_for(options))
    visil = VisilOptions().signature("model", 1)
    text, _, visil_text = page("signature.md").partition("## ViSIL")
    rows = re.findall(r"^\| `(\w+)` \|", text, re.M)
    fields = [field.partition(":")[0] for field in signature.split("|")]
    # The tiny bundle has no learned segmenter and no instruction; there is no GPU or OpenVINO.
    others = ("cut", "instr", "cal", "isa", "batch", "openvino", "onednn", "tensorrt")
    assert [row for row in rows if row not in others] == fields
    visil_rows = re.findall(r"^\| `(\w+)` \|", visil_text, re.M)
    assert visil_rows == [field.partition(":")[0] for field in visil.split("|")[1:]]
