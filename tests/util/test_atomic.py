"""What a writer may not replace, by whatever name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from vcs_runtime.errors import InputError
from vcs_runtime.util.atomic import (
    lies_in,
    new_folder,
    refuse_input_as_output,
    same_file,
    write_whole,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file in it, a link to each, and another folder."""
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "to-folder").symlink_to("in")
    (tmp_path / "other/to-file").symlink_to("../in/file")
    os.link(tmp_path / "in/file", tmp_path / "other/hard")
    (tmp_path / "in/out").symlink_to("../other")
    return tmp_path


@pytest.mark.parametrize(
    ("output", "source", "reason"),
    [
        ("in/file", "in/file", "is the input"),
        ("other/to-file", "in/file", "is the input"),
        ("other/hard", "in/file", "is the input"),
        ("in/file", "other/to-file", "is the input"),
        ("other/../in", "in", "is the input"),
        ("to-folder", "in", "is the input"),
        ("in/new", "in", "is in the input"),
        ("in/new/deeper", "in", "is in the input"),
        ("to-folder/new", "in", "is in the input"),
        ("in/new", "to-folder", "is in the input"),
        ("other/../in/deep/../new", "in", "is in the input"),
        ("other/to-file", "in", "is in the input"),
        ("in/out", "in", "is in the input"),
        ("in/file/new", "in/file", "is in the input"),
    ],
)
def test_an_output_that_is_or_lies_in_its_input_is_refused(
    folder: Path, output: str, source: str, reason: str
) -> None:
    with pytest.raises(InputError, match=f"{reason} .*{source}"):
        refuse_input_as_output(folder / output, folder / "other/nothing", folder / source)


@pytest.mark.parametrize(
    ("output", "source"),
    [("new", "in"), ("in2", "in"), ("other", "in"), ("in", "in/file"), ("new", "missing")],
)
def test_an_output_beside_or_around_its_input_is_not(
    folder: Path, output: str, source: str
) -> None:
    refuse_input_as_output(folder / output, folder / source)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    for name in ("new", "old"):
        write_whole(tmp_path / name, "x")
    (tmp_path / "old").chmod(mode)
    write_whole(tmp_path / "old", "y")
    assert (tmp_path / "old").read_text() == "y"
    assert (tmp_path / "old").stat().st_mode & 0o777 == mode
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


def test_paths_of_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "in")
    assert lies_in(Path(), Path(".."))
    assert lies_in(Path("deep/.."), folder / "in")
    assert lies_in(Path("new"), Path())
    assert same_file(Path(), folder / "in")
    assert not lies_in(Path(".."), Path())


def test_a_new_folder_that_fails_leaves_no_parents(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "a/b/target") as made:
            (made / "half").write_text("x")
            (made / "missing/file").write_text("x")

    with pytest.raises(FileNotFoundError) as caught:
        fail()
    assert caught.value.filename == str(tmp_path / "a/b/target/missing/file")
    assert not list(tmp_path.iterdir())
    with new_folder(tmp_path / "a/b/target") as made:
        (made / "whole").write_text("x")
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["target"]


@pytest.mark.parametrize("name", ["a.txt", "b[12].txt"])
def test_what_a_killed_process_left_is_removed_after_a_day(tmp_path: Path, name: str) -> None:
    left = [tmp_path / f".{name}.partial-{n}" for n in range(4)]
    # Of another file, which the brackets of a pattern would take too.
    other = tmp_path / ".b1.txt.partial-0"
    for path in (left[0], left[1], other):
        path.write_text("half")
    for path in left[2:]:
        path.mkdir()
        (path / "inner").write_text("half")
    for path in (left[0], left[2], other):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    write_whole(tmp_path / name, "whole")
    with new_folder(tmp_path / "new"):
        pass
    assert [path.exists() for path in left] == [False, True, False, True]
    assert other.exists()
