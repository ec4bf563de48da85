"""Sessions of `make nox`: tests in environments of their own, each in a folder of .nox.

Sessions that run without a name test versions: every Python, the newest and the lowest versions of
dependencies, the source archive, old ONNX Runtimes. A Python that this machine lacks is skipped. If
tests fail with versions that the lock does not have, the session names them.

The other sessions run by name, as in `make nox ARGS="-s spark"`. `processors` runs the tests that
compare numbers as other processors would, `lock` writes the versions of tests/locks, and each of
the others needs a library that is large, or that holds back what the oracles use.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import nox
from nox.command import CommandFailed

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PROJECT = nox.project.load_toml("pyproject.toml")
GROUPS = PROJECT["dependency-groups"]
# What a user may install; the extras of tests that need more are skipped.
EXTRAS = "cpu,default,export,parquet,xlsx,experiments,report,serve,kit"
QUICK = "not (slow or ray or browser or toolchain)"
# What the lower bounds decide about: texts, bundles, models, files, the command line, and building
# bundles.
LOWEST = [
    "tests/core",
    "tests/text",
    "tests/util",
    "tests/bundle",
    "tests/segmentation",
    "tests/inference",
    "tests/scoring",
    "tests/words",
    "tests/export/test_default.py",
    "tests/export/test_bert_graph.py",
    "tests/test_portability.py",
]
# On both sides of each bound that a graph sets (vcs_runtime.inference.onnx_session).
ONNXRUNTIMES = ["1.21.0", "1.22.1", "1.23.0", "1.23.1", "1.24.4", "1.25.0"]

LOCKS = Path("tests/locks").absolute()
LOCK = LOCKS / "main.txt"
# Environments whose versions do not fit those of the others, with their extras and groups. Each has
# a lock.
APART = {
    "release": ([], ["release"]),
    "optimum": (["cpu", "export"], ["test", "beside-torch", "optimum"]),
    "triton": (["cpu", "default", "export"], ["test", "triton"]),
}
# Extras that no environment here installs: they bring NVIDIA's libraries.
NVIDIA = {"gpu", "tensorrt"}

# Other processors, as libraries can be made to see them. OpenBLAS is NumPy's and SciPy's, oneDNN
# OpenVINO's. Numba takes the features of this machine unless they are named, too; "" means those of
# the named processor.
PROCESSORS = {
    "sse4": {
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
    "avx2": {
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "avx512": {
        "OPENBLAS_CORETYPE": "SkylakeX",
        "NPY_DISABLE_CPU_FEATURES": "AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "skylake-avx512",
        "NUMBA_CPU_FEATURES": "",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    },
}
# The tests whose results a processor could change.
NUMBERS = [
    "tests/core/test_golden.py",
    "tests/core/test_hm_cf.py",
    "tests/core/test_properties.py",
    "tests/core/test_substitution.py",
    "tests/docs/test_blocks.py",
    "tests/export/test_bert_graph.py",
    "tests/export/test_cuda_encoder.py",
    "tests/export/test_cuda_graph.py",
    "tests/export/test_decoder_command.py",
    "tests/export/test_decoder_cuda_graph.py",
    "tests/export/test_decoder_graph.py",
    "tests/export/test_decoder_parts.py",
    "tests/export/test_half.py",
    "tests/export/test_learned_segmenter.py",
    "tests/export/test_long_context.py",
    "tests/export/test_modernbert.py",
    "tests/export/test_nv_embed.py",
    "tests/export/test_quantization_error.py",
    "tests/export/test_sentence_encoder.py",
    "tests/export/test_static.py",
    "tests/export/test_verify.py",
    "tests/export/test_xlm_roberta_graph.py",
    "tests/inference/test_embedder.py",
    "tests/inference/test_input_layouts.py",
    "tests/inference/test_invariant.py",
    "tests/inference/test_openvino.py",
    "tests/inference/test_openvino_decoders.py",
    "tests/inference/test_releases.py",
    "tests/inference/test_served.py",
    "tests/inference/test_tensorrt.py",
    "tests/inference/test_token_vectors.py",
    "tests/scoring",
    "tests/segmentation",
    "tests/training",
    "tests/words/test_vectors.py",
]
# Processors that Debian's qemu-user emulates, by its name and LLVM's. It is 20 to 50 times slower
# than this machine, so only tests of graphs run there, which compile no kernel of Numba. No
# variable restricts ONNX Runtime, but it takes other code there, too.
EMULATED = {"Haswell": "haswell", "EPYC": "znver1"}
EMULATED_NUMBERS = [
    "tests/export/test_bert_graph.py",
    "tests/export/test_cuda_encoder.py",
    "tests/export/test_xlm_roberta_graph.py",
    "tests/inference/test_input_layouts.py",
    "tests/inference/test_tensorrt.py::test_both_parts_of_a_bundle_get_engines",
]

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["tests", "lowest", "archive", "releases"]
os.environ["UV_BUILD_CONSTRAINT"] = str(LOCK)


def group(name: str) -> tuple[str, ...]:
    """Return the requirements of a dependency group."""
    return nox.project.dependency_groups(PROJECT, name)


def install(session: nox.Session, extras: str, *groups: str, lock: Path = LOCK) -> None:
    """Install this project with some extras and groups, in the versions of a lock."""
    requirements = [requirement for name in groups for requirement in group(name)]
    session.install("--constraints", str(lock), "-e", f".[{extras}]", *requirements)


def run_tests(session: nox.Session, *arguments: str) -> None:
    """Run pytest. If it fails, print the packages whose versions are not those of the lock."""
    try:
        session.run("python", "-m", "pytest", *arguments)
    except CommandFailed:
        session.run("python", "tests/lib/support/locks.py", str(LOCK))
        raise


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the quick tests with the newest version of every dependency."""
    session.install("-e", f".[{EXTRAS}]", *group("test"))
    session.run("vcs-runtime", "fetch", "default")
    run_tests(session, "--numprocesses", "2", "-m", QUICK, *session.posargs)


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """Run the tests of what scores with the lowest version of every dependency."""
    session.install("--resolution", "lowest-direct", "-e", f".[{EXTRAS}]", *group("test"))
    session.run("vcs-runtime", "fetch", "default")
    run_tests(session, "--numprocesses", "2", "-m", QUICK, *(session.posargs or LOWEST))


@nox.session(python=PYTHONS[0])
def archive(session: nox.Session) -> None:
    """Run the quick tests of the source archive with the base install, without extras."""
    folder = Path(session.create_tmp()).absolute()
    session.install("--constraints", str(LOCKS / "release.txt"), "build")
    session.run(
        "python",
        "-m",
        "build",
        "--installer",
        "uv",
        "--sdist",
        "--outdir",
        str(folder),
        silent=True,
    )
    [packed] = folder.glob("*.tar.gz")
    with tarfile.open(packed) as source:
        source.extractall(folder, filter="data")
    packed.unlink()
    session.chdir(folder / packed.name.removesuffix(".tar.gz"))
    tools = ["pytest", "pytest-xdist", "hypothesis", "jsonschema", "pyyaml"]
    session.install("--constraints", str(LOCK), ".[cpu,default]", *tools)
    session.run("vcs-runtime", "fetch", "default")
    run_tests(session, "--numprocesses", "2", "-m", QUICK, *session.posargs)


@nox.session(python=PYTHONS[0])
@nox.parametrize("onnxruntime", ONNXRUNTIMES)
def releases(session: nox.Session, onnxruntime: str) -> None:
    """Run every form of a graph with an ONNX Runtime that suffices, and see the others refused."""
    locked = LOCK.read_text("utf-8").splitlines(keepends=True)
    others = Path(session.create_tmp()).absolute() / "lock.txt"
    others.write_text(
        "".join(line for line in locked if not line.startswith("onnxruntime==")), "utf-8"
    )
    wanted = ["-e", ".[default,export]", f"onnxruntime=={onnxruntime}", *group("test")]
    session.install("--constraints", str(others), *wanted)
    run_tests(session, *(session.posargs or ["tests/inference/test_releases.py"]))


@nox.session(python=PYTHONS[0], reuse_venv=True)
@nox.parametrize("processor", [*PROCESSORS, *EMULATED], ids=[*PROCESSORS, *EMULATED])
def processors(session: nox.Session, processor: str) -> None:
    """Run the tests that compare numbers as on another processor, such as `processors(avx2)`."""
    install(session, EXTRAS + ",openvino", "test")
    session.run("vcs-runtime", "fetch", "default")
    # Each processor has its compiled alignment core.
    session.env["NUMBA_CACHE_DIR"] = str(Path(session.create_tmp()).absolute() / "numba")
    if processor in EMULATED:
        emulate(session, processor)
        return
    session.env.update(PROCESSORS[processor])
    run_tests(session, "--numprocesses", "2", "-m", QUICK, *(session.posargs or NUMBERS))


def emulate(session: nox.Session, processor: str) -> None:
    """Run tests under qemu-user.

    The alignment core is compiled outside, because that is slow there.
    """
    if shutil.which("qemu-x86_64") is None:
        session.skip("qemu-x86_64 is not installed: it is in Debian's package qemu-user")
    session.env.update(NUMBA_CPU_NAME=EMULATED[processor], NUMBA_CPU_FEATURES="")
    session.run("vcs-runtime", "warm-up")
    python = str(Path(session.bin).absolute() / "python")
    tests = session.posargs or EMULATED_NUMBERS
    qemu = ["qemu-x86_64", "-cpu", processor]
    session.run(*qemu, python, "-m", "pytest", "-p", "no:xdist", "-m", QUICK, *tests, external=True)


@nox.session(reuse_venv=True)
def optimum(session: nox.Session) -> None:
    """Export an encoder by optimum, which wants an older transformers than the oracles."""
    lock = LOCKS / "optimum.txt"
    session.install("--constraints", str(LOCK), "pip")
    session.run_install(
        "python", "-m", "pip", "install", "--constraint", str(lock), "torch==2.13.0"
    )
    install(session, "cpu,export", "test", "optimum", lock=lock)
    session.run(
        "python", "-m", "pytest", "tests/parity/test_encoders.py", "-k", "optimum", *session.posargs
    )


@nox.session(reuse_venv=True)
def triton(session: nox.Session) -> None:
    """Ask a real Triton server, out of a wheel that lags behind.

    Only what starts the server is taken from the wheel, without its dependencies, but its Python
    backend is from before NumPy 2.
    """
    install(session, "cpu,default,export", "test", "triton", lock=LOCKS / "triton.txt")
    session.install("--no-deps", "nvidia-pytriton==0.7.0")
    session.run("vcs-runtime", "fetch", "default")
    session.run("python", "-m", "pytest", "tests/triton", *session.posargs)


@nox.session(reuse_venv=True)
def spark(session: nox.Session) -> None:
    """Predict in Spark itself: 400 MB, and it needs Java."""
    install(session, "cpu,default,export", "test", "spark")
    session.run("vcs-runtime", "fetch", "default")
    session.run("python", "-m", "pytest", "tests/spark", *session.posargs)


@nox.session(reuse_venv=True)
def llama(session: nox.Session) -> None:
    """Run ViSIL with a real llama.cpp server, built first in a quarter of an hour on two cores."""
    session.env["CMAKE_ARGS"] = "-DLLAVA_BUILD=OFF"
    install(session, "cpu,default", "llama", "test")
    session.run("python", "-m", "pytest", "tests/llama", *session.posargs)


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Write tests/locks: the newest versions that fit together, for every Python and system.

    `-- --upgrade-package NAME` renews one package, and `-- --no-upgrade` adds what is new in
    pyproject.toml.
    """
    extras = [extra for extra in PROJECT["project"]["optional-dependencies"] if extra not in NVIDIA]
    groups = [name for name in GROUPS if name not in APART]
    for name, (its_extras, its_groups) in {"main": (extras, groups), **APART}.items():
        session.run(
            "uv",
            "pip",
            "compile",
            "pyproject.toml",
            *(f"--extra={extra}" for extra in its_extras),
            *(f"--group={each}" for each in its_groups),
            "--universal",
            f"--python-version={PYTHONS[0]}",
            "--no-emit-package=torch",
            "--no-annotate",
            "--quiet",
            f"--output-file={LOCKS / name}.txt",
            *(session.posargs or ["--upgrade"]),
            env={
                "UV_BUILD_CONSTRAINT": None,
                "UV_CUSTOM_COMPILE_COMMAND": 'make nox ARGS="-s lock"',
            },
            external=True,
        )
