"""The built library in hosts written in C, in an environment without hints about Python."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import struct
import sys
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.capi_cases import CASES, TEXT
from support.capi_programs import Compile, Run, run
from support.processes import captured
from support.stories import story
from vcs_numba import Scores
from vcs_runtime import Scorer, __version__
from vcs_runtime.capi import PROTOTYPES, Flag, Status, build, vcs_params, vcs_result
from vcs_runtime.cli import cli
from vcs_runtime.errors import BuildError, MissingExtraError

PAIRS = [(story(i, 2 + i % 9), story(50 + i, 1 + i % 7)) for i in range(50)]


def output(*command: object) -> str:
    return captured(command, check=True).stdout


def test_nothing_but_the_functions_of_the_header_is_exported(built: build.Built) -> None:
    symbols = output("nm", "-D", "--defined-only", built.file).split()[2::3]
    header = (built.file.parent / build.HEADER).read_text("utf-8")
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = re.findall(r"\b(vcs_\w+)\((?=[^*])", header)
    assert sorted(symbols) == sorted(declared) == sorted(PROTOTYPES)


def test_the_library_names_its_abi_and_the_python_it_starts(built: build.Built) -> None:
    dynamic = output("readelf", "-d", built.file)
    assert "Library soname: [libvcs_runtime.so.1]" in dynamic
    assert f"Shared library: [{built.python.name}]" in dynamic
    assert "NODELETE" in dynamic
    assert built.file.resolve().name == "libvcs_runtime.so.1"


def test_the_structs_of_ctypes_are_those_of_c(probe: Run) -> None:
    layout = dict(line.rsplit(" ", 1) for line in probe("layout").splitlines())
    for kind in (vcs_params, vcs_result):
        assert int(layout.pop(kind.__name__)) == ctypes.sizeof(kind)
        for name, *_ in kind._fields_[1:]:
            assert int(layout.pop(f"{kind.__name__}.{name}")) == getattr(kind, name).offset
    assert not layout


def test_every_status_is_that_of_the_header(built: build.Built) -> None:
    header = (built.file.parent / build.HEADER).read_text("utf-8")
    values = {name: int(value) for name, value in re.findall(r"(VCS_[A-Z_]+) = (\d+)", header)}
    assert values == {each.name: each.value for each in (*Status, *Flag)}


def test_fifty_pairs_score_as_in_python_to_the_bit(
    probe: Run, tiny_bundle: Path, tmp_path: Path
) -> None:
    texts = [text.encode() for pair in PAIRS for text in pair]
    file = tmp_path / "pairs"
    file.write_bytes(
        struct.pack("@N", len(PAIRS))
        + b"".join(struct.pack("@N", len(text)) + text for text in texts)
    )
    raw = probe("pairs", tiny_bundle, file).encode("latin-1")
    results = (vcs_result * (2 * len(PAIRS))).from_buffer_copy(raw)
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        expected = [scorer.score(*pair) for pair in PAIRS]
    for result, by_python in zip(results, expected * 2, strict=True):  # one by one, then in a batch
        assert Scores(*(getattr(result, name) for name in Scores._fields)) == by_python.scores
        assert (result.status, result.n_ref, result.n_gen) == (0, by_python.n_ref, by_python.n_gen)
        assert result.flags == sum(Flag[f"VCS_{name.upper()}"] for name in by_python.flags)


def test_a_program_of_the_first_header_keeps_working(
    compile_program: Compile, tiny_bundle: Path
) -> None:
    printed = run(compile_program("first_version.c"), tiny_bundle).splitlines()
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        one, same = scorer.score_many(
            [(TEXT.decode(), "The dog. A man. The door."), (TEXT.decode(), TEXT.decode())]
        )
    for line, expected in zip(printed, (one, one, None, same), strict=True):
        size, status, n_ref, n_gen, *scores = line.split()
        assert size == "136"
        if expected is None:
            assert (status, n_ref, n_gen, set(scores)) == ("4", "0", "0", {"nan"})
        else:
            assert expected.scores is not None
            assert (status, int(n_ref), int(n_gen)) == ("0", expected.n_ref, expected.n_gen)
            assert tuple(map(float, scores)) == expected.scores[:15]


@pytest.mark.parametrize("standard", ["c11", "c++17"])
def test_the_example_prints_the_scores_of_two_files(
    compile_program: Compile, tiny_bundle: Path, tmp_path: Path, standard: str
) -> None:
    program = compile_program("score.c", standard)
    files = [tmp_path / name for name in ("reference.txt", "generated.txt")]
    for file, text in zip(files, PAIRS[8], strict=True):
        file.write_text(text, "utf-8")
    printed = json.loads(run(program, *files, tiny_bundle, "cpu"))
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        result = scorer.score(*PAIRS[8])
    expected = result.to_dict()
    del expected["flags"], expected["segmenter"]
    assert printed == expected
    done = captured([program, files[0], files[1], "/nowhere"])
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "vcs_model_open: bundle /nowhere: no such folder: give a bundle's folder, default, fast or int8\n"
    )


@pytest.mark.parametrize(("standard", "pairs"), [("c11", 1600), ("c++17", 80)])
def test_eight_threads_with_200_pairs_each_score_what_one_does(
    compile_program: Compile, tiny_bundle: Path, tmp_path: Path, standard: str, pairs: int
) -> None:
    program = compile_program("score_threads.c", standard)
    file = tmp_path / "pairs.tsv"
    file.write_text(
        "".join(f"{story(i, 3)}\t{story(i + 5000, 3)}\n" for i in range(pairs)), "utf-8"
    )
    printed = json.loads(run(program, file, 8, tiny_bundle, "cpu"))
    assert (printed["pairs"], printed["threads"], printed["equal"]) == (pairs, 8, True)


def test_every_misuse_has_the_same_status_in_c(
    compile_program: Compile, tiny_bundle: Path, damaged: Path
) -> None:
    printed = run(compile_program("misuse.c"), tiny_bundle, damaged)
    outcomes = {
        name: (int(status), message)
        for name, status, message in (x.split("\t") for x in printed.splitlines())
    }
    assert list(outcomes) == list(CASES)
    for name, (status, message, _) in CASES.items():
        assert outcomes[name][0] == status, name
        assert message in outcomes[name][1], name


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONHOME": "/nowhere", "PYTHONPATH": "/nowhere", "LC_ALL": "C"},
        {"PATH": "/usr/bin:/bin"},
    ],
    ids=["misleading", "another python in the path"],
)
def test_the_hosts_environment_does_not_change_which_python_runs(
    probe: Run, tiny_bundle: Path, environment: dict[str, str]
) -> None:
    assert probe("version", **environment) == f"1 {__version__}\n"
    assert probe("score", tiny_bundle, **environment) == "1.000\n"


def test_a_path_may_hold_any_characters(probe: Run, tiny_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "Bündel 包")
    assert probe("score", tmp_path / "Bündel 包", LC_ALL="C") == "1.000\n"


def test_messages_go_to_the_function_and_nothing_to_the_standard_streams(
    probe: Run, tiny_bundle: Path
) -> None:
    assert probe("messages", tiny_bundle) == "1.000 1\n"


def test_interrupts_stay_the_hosts(probe: Run, tiny_bundle: Path) -> None:
    assert probe("interrupted", tiny_bundle, "default") == "1 1\n"
    assert probe("interrupted", tiny_bundle, "own") == "1 1 1\n"


def test_a_threads_last_message_is_its_own(probe: Run) -> None:
    assert (
        probe("errors")
        == "out is NULL\nbundle /nowhere: no such folder: give a bundle's folder, default, fast or int8\n"
    )


def test_any_thread_may_be_first_and_a_process_may_end_with_all_open(
    probe: Run, tiny_bundle: Path
) -> None:
    assert probe("abandon", tiny_bundle) == "scored\n"


def test_a_host_may_open_the_library_at_run_time_and_hide_its_symbols(
    compile_program: Compile, built: build.Built, tiny_bundle: Path
) -> None:
    program = compile_program("local.c", link=False)
    assert run(program, built.file, tiny_bundle) == "0 \n"


def test_memory_is_flat(probe: Run, tiny_bundle: Path) -> None:
    """Opening, scoring, closing; and threads that come and go.

    A lost scorer would be a megabyte a time.
    """
    for mode, times, most in (("repeat", 60, 100), ("threads", 600, 2)):
        sizes = list(map(int, probe(mode, tiny_bundle, times).split()))
        assert len(sizes) == times
        assert (sizes[-1] - sizes[9]) / (times - 10) < most, f"{mode}: kB a time"


def test_a_python_host_may_lack_our_packages(built: build.Built, tiny_bundle: Path) -> None:
    """A package of our version, which comes from the environment that the library is bound to."""
    code = (
        "import ctypes, sys; sys.path = [p for p in sys.path if 'site-packages' not in p];"
        f"lib = ctypes.CDLL({str(built.file)!r}); model = ctypes.c_void_p();"
        f"print(lib.vcs_model_open({bytes(tiny_bundle)!r}, b'cpu', ctypes.byref(model)))"
    )
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    assert output(base, "-I", "-S", "-c", code) == "0\n"


def test_a_python_without_our_packages_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, compile_program: Compile, tiny_bundle: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "empty")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "empty/bin/python"))
    library = build.build(tmp_path / "library").file
    program = compile_program("local.c", link=False)
    printed = run(program, library, tiny_bundle)
    assert printed.startswith(
        "7 Python could not be started: ModuleNotFoundError: No module named '_cffi_backend'"
    )
    assert f"bound to {sys.executable}" in printed


def test_the_command_builds_checks_and_says_what_it_is_bound_to(
    built: build.Built, tiny_bundle: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new/folder"
    arguments = ["capi", "build", "-o", str(folder), "--check", "--bundle", str(tiny_bundle)]
    for _ in range(2):  # and a second time over the first
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
        assert list(lines) == ["library", "interpreter", "packages", "vcs-runtime", "example"]
        assert sys.executable in lines["interpreter"]
        assert json.loads(lines["example"])["n_ref"] == 2
    assert sorted(path.name for path in folder.iterdir()) == [
        "libvcs_runtime.so",
        "libvcs_runtime.so.1",
        "vcs_runtime.h",
        "vcs_runtime.pc",
    ]
    if shutil.which("pkg-config"):
        flags = output(
            "env", f"PKG_CONFIG_PATH={folder}", "pkg-config", "--cflags", "--libs", "vcs_runtime"
        )
        assert flags.split() == [f"-I{folder}", f"-L{folder}", "-lvcs_runtime"]


@pytest.mark.parametrize("name", [build.SONAME, build.HEADER, "vcs_runtime.pc"])
def test_building_replaces_no_file_of_others(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("thesis")
    with pytest.raises(BuildError, match=f"{name} is not a file of this library"):
        build.build(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["thesis"]


def test_building_writes_through_no_link(built: build.Built, tmp_path: Path) -> None:
    folder, thesis = tmp_path / "lib", tmp_path / "thesis"
    folder.mkdir()
    thesis.write_text("thesis")
    names = (build.SONAME, build.HEADER, "vcs_runtime.pc", build.LIBRARY)
    for name in names:
        (folder / name).symlink_to(thesis)
    build.build(folder)
    assert thesis.read_text() == "thesis"
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert [path.name for path in folder.iterdir() if path.is_symlink()] == [build.LIBRARY]
    assert (folder / build.SONAME).stat().st_mode == (
        built.file.parent / build.SONAME
    ).stat().st_mode
    for name in (build.HEADER, "vcs_runtime.pc"):
        assert (folder / name).read_bytes() == (built.file.parent / name).read_bytes()


def test_what_building_lacks_is_said(
    built: build.Built, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(message: str, error: type[Exception] = BuildError) -> None:
        with pytest.raises(error, match=re.escape(message)):
            build.build(tmp_path / "never")

    with monkeypatch.context() as changed:
        changed.setitem(sys.modules, "cffi", None)
        refused("building the C API needs cffi", MissingExtraError)
    with monkeypatch.context() as changed:
        changed.setattr("sysconfig.get_config_var", lambda name: None)
        refused("no shared library of Python")
    with monkeypatch.context() as changed:
        changed.setattr("sysconfig.get_path", lambda name: "/nowhere")
        refused("no Python.h")
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    refused("no C compiler 'no-such-compiler -m64'")


def test_a_child_that_was_forked_after_the_first_call_is_told_so(
    compile_program: Compile, tiny_bundle: Path
) -> None:
    child, parent = run(compile_program("forked.c"), tiny_bundle).splitlines()
    assert child == "7 this process was forked after the first call: fork before it"
    assert parent == "0"
