"""A bundle is there, whole and hashed, or not there at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from support.waiting import HANGS_AFTER_S
from vcs_export.errors import ExportError
from vcs_export.write import BundleExistsError, BundleInfo, BundleWriter
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import BundleError

INFO, REPLACING = BundleInfo("n", "l", "s"), BundleInfo("n", "l", "s", replace=True)


def write(target: Path, content: str = "x", replace: bool = False) -> Path:
    with BundleWriter(target, BundleInfo("n", "l", "s", replace=replace)) as bundle:
        bundle.file("a/b.txt").write_text(content)
        return bundle.commit()


def write_together(target: Path, content: str, together: Barrier) -> None:
    """What several processes do at once: all are writing before one of them is done."""
    with BundleWriter(target, REPLACING) as bundle:
        bundle.file("a/b.txt").write_text(content)
        together.wait(HANGS_AFTER_S)
        bundle.commit()


def test_a_bundle_is_verified_by_the_runtime(tmp_path: Path) -> None:
    target = write(tmp_path / "deep" / "er" / "bundle")
    opened = open_bundle(target)
    assert [(entry.path, entry.size) for entry in opened.manifest.files] == [("a/b.txt", 1)]
    assert os.listdir(target.parent) == ["bundle"]


def test_an_existing_bundle_is_kept_unless_asked(tmp_path: Path) -> None:
    target = write(tmp_path / "bundle", "old")
    with pytest.raises(BundleExistsError, match="exists already"):
        write(target, "new")
    assert (target / "a/b.txt").read_text() == "old"
    write(target, "new", replace=True)
    assert (open_bundle(target).root / "a/b.txt").read_text() == "new"
    assert os.listdir(tmp_path) == ["bundle"]


def test_a_link_to_a_bundle_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", "keep")
    (tmp_path / "bundle").symlink_to(elsewhere)
    with pytest.raises(BundleExistsError):
        write(tmp_path / "bundle")
    write(tmp_path / "bundle", replace=True)
    assert not (tmp_path / "bundle").is_symlink()
    assert (elsewhere / "a/b.txt").read_text() == "keep"


def put(target: Path, kind: str) -> None:
    """Put something in the place of a bundle."""
    bundle = target.parent / "another"
    if kind == "file":
        target.write_text("thesis")
    elif kind == "broken link":
        target.symlink_to("nowhere")
    elif kind == "link to a folder":
        bundle.mkdir()
        (bundle / "thesis").write_text("thesis")
        target.symlink_to(bundle)
    else:
        target.mkdir()
        (target / "thesis").write_text("thesis")
    if kind == "another bundle.json":
        (target / "bundle.json").write_text('{"files": [], "version": 2}')
    elif kind == "link to a manifest":
        (target / "bundle.json").symlink_to(write(bundle) / "bundle.json")
    elif kind == "folder of that name":
        (target / "bundle.json").mkdir()


FOREIGN = {
    "file": "not a folder",
    "broken link": "a broken link",
    "link to a folder": "a folder without bundle.json",
    "folder": "a folder without bundle.json",
    "another bundle.json": "a folder whose bundle.json is not of a bundle",
    "link to a manifest": "a folder without bundle.json",
    "folder of that name": "a folder without bundle.json",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_only_a_bundle_is_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "bundle"
    put(target, kind)
    before = sorted(os.listdir(tmp_path)), os.path.islink(target)
    with pytest.raises(ExportError, match=f"{target} is {FOREIGN[kind]} and is not replaced"):
        write(target, replace=True)
    assert (sorted(os.listdir(tmp_path)), os.path.islink(target)) == before
    if kind == "file":
        assert target.read_text() == "thesis"
    elif kind != "broken link":
        assert (target / "thesis").read_text() == "thesis"


@pytest.mark.parametrize("manifest", ["whole", "damaged"])
@pytest.mark.parametrize("name", ["mine.txt", "a/thesis.tex"])
def test_a_bundle_with_a_foreign_file_is_not_replaced(
    tmp_path: Path, manifest: str, name: str
) -> None:
    target = write(tmp_path / "bundle")
    text = (target / "bundle.json").read_text()
    (target / "bundle.json").write_text(text if manifest == "whole" else text[:-20])
    (target / name).write_text("mine")
    with pytest.raises(
        ExportError, match=f"is a bundle with a file that is not its own, {name} and is"
    ):
        write(target, replace=True)
    assert (target / name).read_text() == "mine"


def test_what_appears_during_the_work_is_not_replaced(tmp_path: Path) -> None:
    target = write(tmp_path / "bundle")
    with BundleWriter(target, REPLACING) as bundle:
        bundle.file("a").write_text("x")
        target.rename(tmp_path / "old")
        put(target, "folder")
        with pytest.raises(ExportError, match="without bundle.json"):
            bundle.commit()
    assert os.listdir(target) == ["thesis"]
    assert sorted(os.listdir(tmp_path)) == ["bundle", "old"]


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-20], lambda text: text.replace(": 3", ": 99")]
)
def test_a_damaged_bundle_and_an_empty_folder_are_replaced(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    target = write(tmp_path / "bundle", "old")
    manifest = target / "bundle.json"
    manifest.write_text(damage(manifest.read_text("utf-8")), "utf-8")
    with pytest.raises(BundleError):
        open_bundle(target)
    assert open_bundle(write(target, "new", replace=True)).manifest.name == "n"
    (tmp_path / "empty").mkdir()
    assert open_bundle(write(tmp_path / "empty", replace=True)).manifest.name == "n"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, MemoryError])
@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupted_write_leaves_all_as_it_was(
    tmp_path: Path, error: type[BaseException], existing: bool
) -> None:
    target = tmp_path / "bundle"
    if existing:
        write(target, "old")

    def interrupted() -> None:
        with BundleWriter(target, REPLACING) as bundle:
            bundle.file("a/b.txt").write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert os.listdir(tmp_path) == (["bundle"] if existing else [])
    if existing:
        assert (open_bundle(target).root / "a/b.txt").read_text() == "old"


def test_a_failed_bundle_leaves_no_parents(tmp_path: Path) -> None:
    with BundleWriter(tmp_path / "a/b/bundle", INFO) as bundle:
        bundle.file("a").write_text("x")
    assert os.listdir(tmp_path) == []


def test_leaving_without_commit_writes_nothing(tmp_path: Path) -> None:
    with BundleWriter(tmp_path / "bundle", INFO) as bundle:
        bundle.file("a").write_text("x")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_one_readable_line(tmp_path: Path) -> None:
    with (
        pytest.raises(
            ExportError, match=r"cannot write the bundle \S+bundle: No space left .*weights"
        ) as caught,
        BundleWriter(tmp_path / "bundle", INFO),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_one_readable_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExportError, match="cannot write the bundle .*file"):
        write(tmp_path / "file" / "bundle")

    # Permissions do not bind a superuser, so the refusal is staged.
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ExportError, match="cannot write the bundle .*Permission denied"):
        write(tmp_path / "bundle")


def test_a_failed_replacement_puts_the_old_bundle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write(tmp_path / "bundle", "old")
    rename = Path.rename

    def fail_into_place(self: Path, to: Path) -> Path:
        if to == target and (self / "a/b.txt").read_text() == "new":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(to))
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail_into_place)
    with pytest.raises(ExportError, match="cannot write the bundle"):
        write(target, "new", replace=True)
    assert (open_bundle(target).root / "a/b.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["bundle"]


def test_losing_a_race_keeps_the_winner(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    with BundleWriter(target, INFO) as slow:
        slow.file("a/b.txt").write_text("slow")
        write(target, "fast")
        with pytest.raises(BundleExistsError, match="another process"):
            slow.commit()
    assert (open_bundle(target).root / "a/b.txt").read_text() == "fast"
    assert os.listdir(tmp_path) == ["bundle"]


@pytest.mark.slow
def test_processes_that_replace_at_once_leave_one_whole_bundle(tmp_path: Path) -> None:
    target = write(tmp_path / "bundle", "old")
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(3)
    processes = [
        context.Process(target=write_together, args=(target, str(i), together)) for i in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (open_bundle(target).root / "a/b.txt").read_text() in {"0", "1", "2"}
    assert os.listdir(tmp_path) == ["bundle"]


def test_what_a_killed_process_left_is_swept_after_a_day(tmp_path: Path) -> None:
    old, young = tmp_path / ".bundle.partial-1", tmp_path / ".bundle.partial-2"
    for folder in (old, young):
        folder.mkdir()
        (folder / "weights").write_text("half")
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    write(tmp_path / "bundle")
    assert not old.exists()
    assert young.exists()
