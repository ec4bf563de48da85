"""Sessions of `make nox`: tests in environments of their own, each in a folder of .nox.

Those that run without a name are about versions: every Python, the lowest versions of dependencies, the
source archive. A Python that this machine lacks is skipped. The others each need a library that is large, or
holds back what the oracles use: `make nox ARGS="-s optimum deepeval triton spark llama"`.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PROJECT = nox.project.load_toml("pyproject.toml")
TEST, LLAMA = (nox.project.dependency_groups(PROJECT, group) for group in ("test", "llama"))
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

# On both sides of each bound that a graph sets (vcs_runtime.inference.onnx_session).
ONNXRUNTIMES = ["1.21.0", "1.22.1", "1.23.0", "1.23.1", "1.24.4", "1.25.0"]

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["tests", "lowest", "archive", "releases"]


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


@nox.session(reuse_venv=True)
def optimum(session: nox.Session) -> None:
    """Export an encoder by optimum, which wants an older transformers than the oracles."""
    session.install("torch==2.13.0")
    session.install("transformers<4.58", "optimum-onnx", "-e", ".[cpu,export]", *TEST)
    session.run("python", "-m", "pytest", "tests/parity/test_encoders.py", "-k", "optimum", *session.posargs)


@nox.session(reuse_venv=True)
def deepeval(session: nox.Session) -> None:
    """Run the metric for DeepEval, which wants older versions of what the oracles use.

    DeepEval brings a pytest plugin that would report every run.
    """
    session.install("-e", ".[cpu,default]", "deepeval>=3")
    off = ["-p", "no:deepeval", "-p", "no:asyncio"]
    session.env["DEEPEVAL_TELEMETRY_OPT_OUT"] = "1"
    session.run("python", "-m", "pytest", *off, "tests/deepeval", *session.posargs)


@nox.session(reuse_venv=True)
def triton(session: nox.Session) -> None:
    """Ask a real Triton server, out of a wheel that lags behind.

    Only what starts the server is taken from the wheel, without its dependencies, but its Python backend is
    from before NumPy 2.
    """
    session.install("-e", ".[cpu,default,export]", *TEST, "tritonclient[grpc,http]", "numpy<2")
    session.install("--no-deps", "nvidia-pytriton")
    session.run("vcs-runtime", "fetch", "default")
    session.run("python", "-m", "pytest", "tests/triton", *session.posargs)


@nox.session(reuse_venv=True)
def spark(session: nox.Session) -> None:
    """Predict in Spark itself: 400 MB, and it needs Java."""
    session.install("-e", ".[cpu,default,export]", *TEST, "pyspark[sql]>=3.4")
    session.run("vcs-runtime", "fetch", "default")
    session.run("python", "-m", "pytest", "tests/spark", *session.posargs)


@nox.session(reuse_venv=True)
def llama(session: nox.Session) -> None:
    """Run ViSIL with a real llama.cpp server, which pip builds: a quarter of an hour on two cores, once."""
    session.install("-e", ".[cpu,default]", *LLAMA, *TEST, env={"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"})
    session.run("python", "-m", "pytest", "tests/llama", *session.posargs)
