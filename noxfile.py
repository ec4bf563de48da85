"""Sessions of `make versions`: every Python, the lowest versions of dependencies, the source archive.

A Python that this machine lacks is skipped.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
TEST = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")
# What a user may install; the extras of tests that need more are skipped.
EXTRAS = "cpu,default,export,parquet,xlsx,experiments,report,serve,kit"
QUICK = "not (slow or ray or browser or toolchain)"
# What the lower bounds decide about: texts, bundles, models, files, the command line, and building bundles.
LOWEST = ["tests/core", "tests/text", "tests/util", "tests/bundle", "tests/segmentation", "tests/inference"]
LOWEST += [
    "tests/scoring",
    "tests/words",
    "tests/export/test_default.py",
    "tests/export/test_bert_graph.py",
    "tests/test_portability.py",
]

# On both sides of each bound that a graph sets (vcs_runtime.inference.releases).
ONNXRUNTIMES = ["1.21.0", "1.22.1", "1.23.0", "1.23.1", "1.24.4", "1.25.0"]

nox.options.default_venv_backend = "venv"


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the quick tests with the newest versions."""
    session.install("-e", f".[{EXTRAS}]", *TEST)
    session.run("vcs-runtime", "fetch", "default")
    session.run("python", "-m", "pytest", "--numprocesses", "2", "-m", QUICK, *session.posargs)


@nox.session(python=PYTHONS[0], venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Run the tests of what scores with the lowest version of every dependency."""
    session.install(
        "--resolution", "lowest-direct", "-e", f".[{EXTRAS}]", *TEST,
    )  # fmt: skip
    session.run("vcs-runtime", "fetch", "default")
    session.run("python", "-m", "pytest", "--numprocesses", "2", "-m", QUICK, *(session.posargs or LOWEST))


@nox.session(python=PYTHONS[0])
def archive(session: nox.Session) -> None:
    """Run the quick tests of the source archive with what scoring needs; those of extras are skipped."""
    folder = Path(session.create_tmp()).absolute()
    session.install("build")
    session.run("python", "-m", "build", "--sdist", "--outdir", str(folder), silent=True)
    [packed] = folder.glob("*.tar.gz")
    with tarfile.open(packed) as source:
        source.extractall(folder, filter="data")
    packed.unlink()
    session.chdir(folder / packed.name.removesuffix(".tar.gz"))
    session.install(".[cpu,default]", "pytest", "pytest-xdist", "hypothesis", "jsonschema", "pyyaml")
    session.run("vcs-runtime", "fetch", "default")
    session.run("python", "-m", "pytest", "--numprocesses", "2", "-m", QUICK, *session.posargs)


@nox.session(python=PYTHONS[0], venv_backend="uv")
@nox.parametrize("onnxruntime", ONNXRUNTIMES)
def releases(session: nox.Session, onnxruntime: str) -> None:
    """Run every form of a graph with an ONNX Runtime that suffices, and see the others refused."""
    session.install("-e", ".[default,export]", f"onnxruntime=={onnxruntime}", *TEST)
    session.run("python", "-m", "pytest", *(session.posargs or ["tests/inference/test_releases.py"]))
