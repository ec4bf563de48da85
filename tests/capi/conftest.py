"""The library, built once, and tiny bundles to score with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.capi_cases import Host, host
from support.capi_programs import Compile, Run, run
from vcs_runtime import capi
from vcs_runtime.capi import build as building
from vcs_runtime.errors import BuildError

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def damaged(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle, one byte of its graph changed."""
    copy = shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("damaged") / "bundle")
    model = copy / "embedder/model.onnx"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    return copy


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> building.Built:
    try:
        building.find_tools()
    except BuildError as error:
        pytest.skip(str(error))
    return building.build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def compile_program(built: building.Built, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compile a C file of tests/capi or the examples strictly, and return the program."""

    def compile_one(name: str, standard: str = "c11", *, link: bool = True) -> Path:
        source = HERE / name if (HERE / name).is_file() else building.source("examples") / name
        work = tmp_path_factory.mktemp("program")
        if standard.startswith("c++"):
            source = Path(shutil.copy(source, work / f"{source.stem}.cpp"))
        folder = built.file.parent
        linked = [f"-L{folder}", "-lvcs_runtime", f"-Wl,-rpath,{folder}"] if link else ["-ldl"]
        building.compile_c(
            [source],
            work / source.stem,
            f"-std={standard}",
            *building.STRICT,
            "-pthread",
            f"-I{folder}",
            *linked,
        )
        return work / source.stem

    return compile_one


@pytest.fixture(scope="session")
def probe(compile_program: Compile) -> Run:
    """Run `probe.c` in an environment that is not ours; returns what it printed."""
    program = compile_program("probe.c")
    return lambda *arguments, **environment: run(program, *arguments, **environment)


@pytest.fixture(
    scope="session", params=["python", pytest.param("ctypes", marks=pytest.mark.toolchain)]
)
def api(request: pytest.FixtureRequest) -> object:
    """The API as `vcs_runtime.capi` has it, and as the library in this process has it."""
    return capi if request.param == "python" else capi.load(request.getfixturevalue("built").file)


@pytest.fixture(scope="session")
def opened(api: object, tiny_bundle: Path, damaged: Path) -> Iterator[Host]:
    with host(api, tiny_bundle, damaged) as opened:
        yield opened
