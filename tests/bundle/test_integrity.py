"""Large files: hashed once per machine, and again as soon as anything about them has changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from vcs_export.write import BundleInfo, BundleWriter
from vcs_runtime import BundleError
from vcs_runtime.bundle import integrity
from vcs_runtime.bundle.manifest import MANIFEST, Manifest, read_manifest
from vcs_runtime.bundle.merge import merge
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.bundle.paths import home

DATA = "embedder/model.onnx.data"


@pytest.fixture
def large(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle whose weights count as large; the machine's memory is empty."""
    copy = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    monkeypatch.setattr(integrity, "LARGE", 20_000)
    monkeypatch.setattr(integrity, "_MIB", 1000)
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))
    manifest = read_manifest(copy / MANIFEST)
    entries = tuple(
        replace(entry, ends=integrity.ends_of(copy / entry.path)) for entry in manifest.files
    )
    assert [entry.path for entry in entries if entry.ends] == [DATA]
    (copy / MANIFEST).write_text(replace(manifest, files=entries).to_json())
    return copy


@pytest.fixture
def hashed(calls_of: Callable[[Any, str], list[Any]]) -> list[Any]:
    """The files that are hashed."""
    return calls_of(integrity, "sha256_of")


def times(hashed: list[Any], name: str = "model.onnx.data") -> int:
    return [path.name for (path,) in hashed].count(name)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_a_large_file_is_hashed_once_and_small_ones_always(large: Path, hashed: list[Any]) -> None:
    for _ in range(3):
        open_bundle(large)
    assert times(hashed) == 1
    assert times(hashed, "tokenizer.json") == 3
    assert len(list((home() / "verified").iterdir())) == 1


def test_in_full_everything_is_hashed(large: Path, hashed: list[Any]) -> None:
    open_bundle(large)
    open_bundle(large, full=True)
    assert times(hashed) == 2


@pytest.mark.parametrize("at", [0, 40_000, -1])
def test_a_changed_large_file_is_noticed_even_if_its_time_is_set_back(large: Path, at: int) -> None:
    open_bundle(large)
    path = large / DATA
    before = path.stat()
    flip(path, at % before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(BundleError, match="is damaged"):
        open_bundle(large)


def test_a_bundle_is_not_hashed_again_because_others_link_to_its_weights(
    large: Path, hashed: list[Any], tmp_path: Path
) -> None:
    open_bundle(large)
    merge(large, large, tmp_path / "second")
    with BundleWriter(tmp_path / "third", BundleInfo("third", "CC0-1.0", "x")) as writer:
        writer.link(large / DATA, "embedder/data")  # removed again, as nothing is committed
    assert (large / DATA).stat().st_nlink == 2
    for bundle in (large, tmp_path / "second"):
        open_bundle(bundle)
    assert times(hashed) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_was_changed_around_a_link_is_noticed_even_if_its_time_is_set_back(
    large: Path, tmp_path: Path, when: str
) -> None:
    open_bundle(large)
    path = large / DATA
    before = path.stat()
    if when == "after":
        integrity.link(path, tmp_path / "link")
    flip(path, 40_000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if when == "before":
        integrity.link(path, tmp_path / "link")
    with pytest.raises(BundleError, match="is damaged"):
        open_bundle(large)


def test_a_link_that_another_program_makes_lets_the_file_be_hashed_again(
    large: Path, hashed: list[Any], tmp_path: Path
) -> None:
    open_bundle(large)
    os.link(large / DATA, tmp_path / "link")
    open_bundle(large)
    assert times(hashed) == 2


def test_what_is_remembered_of_one_hash_says_nothing_about_another(large: Path) -> None:
    open_bundle(large)
    text = (large / MANIFEST).read_text()
    [digest] = [e.sha256 for e in read_manifest(large / MANIFEST).files if e.path == DATA]
    (large / MANIFEST).write_text(text.replace(digest, "0" * 64))
    with pytest.raises(BundleError, match="is damaged"):
        open_bundle(large)


def test_the_ends_of_a_remembered_file_are_checked(large: Path) -> None:
    open_bundle(large)
    manifest = read_manifest(large / MANIFEST)
    wrong = tuple(replace(entry, ends=entry.ends and "0" * 64) for entry in manifest.files)
    (large / MANIFEST).write_text(replace(manifest, files=wrong).to_json())
    with pytest.raises(BundleError, match="is damaged"):
        open_bundle(large)


def test_a_damaged_file_is_not_remembered(large: Path) -> None:
    flip(large / DATA, 40_000)
    for _ in range(2):
        with pytest.raises(BundleError, match="is damaged"):
            open_bundle(large)
    assert not (home() / "verified").exists()


def test_a_file_that_changes_while_it_is_hashed_is_not_remembered(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = large / DATA
    before = path.stat()
    really = integrity.sha256_of

    def changed_meanwhile(file: Path) -> str:
        digest = really(file)
        if file == path:
            flip(file, 40_000)
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        return digest

    with monkeypatch.context() as patch:
        patch.setattr(integrity, "sha256_of", changed_meanwhile)
        open_bundle(large)  # the bytes that it read were right
    assert not (home() / "verified").exists()
    with pytest.raises(BundleError, match="is damaged"):
        open_bundle(large)


def test_a_home_that_cannot_be_written_costs_time_alone(
    large: Path, hashed: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "file"))
    open_bundle(large)
    open_bundle(large)
    assert times(hashed) == 2


def test_sizes_are_checked_before_anything_is_hashed(large: Path, hashed: list[Any]) -> None:
    manifest: Manifest = read_manifest(large / MANIFEST)
    last = large / manifest.files[-1].path
    last.write_bytes(last.read_bytes() + b"x")
    with pytest.raises(BundleError, match="bytes"):
        open_bundle(large)
    assert hashed == []
