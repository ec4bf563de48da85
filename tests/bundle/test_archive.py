"""Bundles as one file, and two as one."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.changed_bundles import contents
from support.command_line import assert_refused, vcs
from support.stories import story
from support.tiny_layouts import build_layout_bundle
from vcs_runtime import BundleError, Embedder, Scorer
from vcs_runtime.bundle import archive
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.merge import merge
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import InputError


# Copies, because `make` links files, and some tools refuse linked bundles.
@pytest.fixture
def tiny(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("copy") / "bundle")


@pytest.fixture
def sat(sat_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(sat_bundle, tmp_path_factory.mktemp("copy") / "bundle")


@pytest.fixture
def mixed(mixed_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(mixed_bundle, tmp_path_factory.mktemp("copy") / "bundle")


def pack(bundle: Path, output: Path, **options: Any) -> bytes:
    archive.pack(bundle, output, advance=lambda count: None, **options)
    return output.read_bytes()


def unpack(source: Path, target: Path) -> Path:
    archive.unpack(source, target, advance=lambda count: None)
    return target


@pytest.fixture
def packed(tiny: Path, tmp_path: Path) -> Path:
    pack(tiny, tmp_path / "packed.vcs")
    return tmp_path / "packed.vcs"


def test_what_is_unpacked_is_what_was_packed(tiny: Path, packed: Path, tmp_path: Path) -> None:
    assert contents(unpack(packed, tmp_path / "new/folder")) == contents(tiny)
    open_bundle(tmp_path / "new/folder", full=True)
    assert sorted(os.listdir(tmp_path)) == ["new", "packed.vcs"]
    assert os.listdir(tmp_path / "new") == ["folder"]


def test_equal_bundles_are_equal_files(packed: Path, tmp_path: Path) -> None:
    copy = unpack(packed, tmp_path / "copy")
    os.utime(copy / "embedder/tokenizer.json", (1, 1))
    os.chmod(copy / "embedder/tokenizer.json", 0o600)
    assert pack(copy, tmp_path / "again.vcs") == packed.read_bytes()


def test_any_tar_reads_it(tiny: Path, packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed) as tar:
        assert tar.getnames()[0] == MANIFEST
        assert {m.name: tar.extractfile(m).read() for m in tar if m.isreg()} == contents(tiny)  # type: ignore[union-attr]
        assert {(m.uid, m.gid, m.mtime, m.mode, m.uname) for m in tar} == {(0, 0, 0, 0o644, "")}


def test_a_file_of_more_than_8_gb_has_a_plain_header() -> None:
    header = archive.tar_header("embedder/model.onnx.data", 15_702_032_384)
    assert len(header) == 512
    assert tarfile.TarInfo.frombuf(header, "utf-8", "strict").size == 15_702_032_384


def test_progress_covers_every_byte(tiny: Path, packed: Path, tmp_path: Path) -> None:
    total = sum(entry.size for entry in open_bundle(tiny).manifest.files)
    seen: list[int] = []
    archive.pack(tiny, tmp_path / "o", advance=seen.append)
    archive.unpack(packed, tmp_path / "u", advance=seen.append)
    assert sum(seen) == 2 * total


def test_nothing_is_replaced_unasked(tiny: Path, packed: Path, tmp_path: Path) -> None:
    before = packed.read_bytes()
    with pytest.raises(InputError, match=r"packed\.vcs exists already"):
        pack(tiny, packed)
    assert pack(tiny, packed, force=True) == before
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="there exists already"):
        unpack(packed, tmp_path / "there")


@pytest.mark.parametrize("kind", ["text", "folder", "link to a text", "broken link"])
def test_only_a_packed_bundle_is_replaced(tiny: Path, tmp_path: Path, kind: str) -> None:
    output, text = tmp_path / "output", tmp_path / "thesis"
    if kind == "folder":
        output.mkdir()
    elif kind == "text":
        output.write_text("a thesis")
    else:
        output.symlink_to(text)
        if kind == "link to a text":
            text.write_text("a thesis")
    before = contents(tmp_path)
    finished = vcs("bundle", "pack", tiny, "-o", output, "--overwrite")
    assert (finished.code, finished.stderr) == (
        2,
        (
            f"vcs-runtime: {output} is not a packed bundle and is not replaced: choose another"
            " output\n"
        ),
    )
    assert contents(tmp_path) == before
    assert os.path.lexists(output)


def test_a_cut_packed_bundle_and_an_empty_file_are_replaced(packed: Path, tiny: Path) -> None:
    whole = packed.read_bytes()
    for rest in (whole[:700], b""):
        packed.write_bytes(rest)
        assert vcs("bundle", "pack", tiny, "-o", packed, "--overwrite").code == 0
        assert packed.read_bytes() == whole


@pytest.mark.parametrize("command", ["pack", "pack manifest", "pack link", "unpack", "make"])
def test_no_bundle_is_written_over_or_into_its_source(
    tiny: Path, packed: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "link").symlink_to(tiny)
    (tmp_path / "manifest").symlink_to(tiny / MANIFEST)
    before = contents(tiny), packed.read_bytes()
    arguments = {
        "pack": ("pack", tiny, "-o", tmp_path / "link/x.tar"),
        "pack manifest": ("pack", tiny, "-o", tiny / "embedder/.." / MANIFEST, "--overwrite"),
        "pack link": ("pack", tmp_path / "link", "-o", tmp_path / "manifest", "--overwrite"),
        "unpack": ("unpack", packed, "-o", packed / "x"),
        "make": ("make", "--embedder", tiny, "--segmenter", tiny, "-o", tmp_path / "link/x"),
    }[command]
    finished = vcs("bundle", *arguments)
    assert_refused(finished, "is in the input")
    assert "choose another output" in finished.stderr
    assert (contents(tiny), packed.read_bytes()) == before
    assert sorted(os.listdir(tmp_path)) == ["link", "manifest", "packed.vcs"]


def test_a_damaged_bundle_is_not_packed(packed: Path, tmp_path: Path) -> None:
    copy = unpack(packed, tmp_path / "copy")
    data = bytearray((copy / "embedder/model.onnx.data").read_bytes())
    data[5] ^= 1
    (copy / "embedder/model.onnx.data").write_bytes(data)
    with pytest.raises(BundleError, match="is damaged"):
        pack(copy, tmp_path / "o")
    assert sorted(os.listdir(tmp_path)) == ["copy", "packed.vcs"]


def retar(
    change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], object],
) -> Callable[[bytes], bytes]:
    """Unpack a tar file into its members, change these, and pack them again as `pack` would."""

    def attack(packed: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            members = [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
        change(members)
        parts = []
        for info, data in members:
            parts += [info.tobuf(tarfile.GNU_FORMAT), data, bytes(-len(data) % 512)]
        return b"".join(parts) + bytes(1024)

    return attack


def renamed(name: str) -> Callable[[bytes], bytes]:
    return retar(lambda members: setattr(members[2][0], "name", name))


def typed(kind: bytes, target: str = "") -> Callable[[bytes], bytes]:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info, _ = members[2]
        info.type, info.linkname, info.size = kind, target, 0
        members[2] = info, b""

    return retar(change)


def manifested(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def edit(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info, data = members[0]
        told = json.loads(data)
        change(told)
        data = json.dumps(told).encode()
        info.size = len(data)
        members[0] = info, data

    return retar(edit)


def extra(name: str) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    return info, b""


def sized(size: int) -> Callable[[bytes], bytes]:
    return retar(lambda members: setattr(members[2][0], "size", size))


def flipped(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + bytes([packed[middle] ^ 1]) + packed[middle + 1 :]


ATTACKS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no tar file": (lambda b: b"x" * 5000, r"is not a packed bundle"),
    "an empty file": (lambda b: b"", "is not a packed bundle"),
    "a compressed one": (lambda b: b"\x1f\x8b" + b, "is not a packed bundle"),
    "one flipped bit": (flipped, "is damaged"),
    "a file cut short within a file": (lambda b: b[: len(b) // 2], "the file ends within"),
    "a file cut short at its end": (lambda b: b[:-512], "cut short"),
    "a file cut short in the manifest": (lambda b: b[:600], "cut short|cannot be read"),
    "something behind the end": (lambda b: b + b"x", "goes on after the end of the bundle"),
    "a second archive behind the end": (lambda b: b + b, "goes on after the end of the bundle"),
    "an unlisted file": (
        retar(lambda m: m.append(extra("evil.so"))),
        "cut short, or not a packed",
    ),
    "an unlisted file between": (
        retar(lambda m: m.insert(2, extra("evil.so"))),
        r"should come next, not 'evil.so' \(file",
    ),
    "a missing file": (retar(lambda m: m.pop()), "should come next, not the end"),
    "a file twice": (retar(lambda m: m.insert(2, m[1])), "should come next"),
    "files in another order": (retar(lambda m: m.reverse()), "does not begin with bundle.json"),
    "the manifest twice": (
        retar(lambda m: m.insert(1, m[0])),
        "should come next, not 'bundle.json'",
    ),
    "a path upwards": (renamed("../../evil"), r"not '../../evil'"),
    "an absolute path": (renamed("/elsewhere/evil"), "not '/elsewhere/evil'"),
    "a symbolic link": (typed(tarfile.SYMTYPE, "/etc/passwd"), r"\(link, 0 bytes\)"),
    "a hard link": (typed(tarfile.LNKTYPE, "/etc/passwd"), r"\(link, 0 bytes\)"),
    "a folder": (typed(tarfile.DIRTYPE), "type b'5'"),
    "a device": (typed(tarfile.CHRTYPE), "type b'3'"),
    "a pipe": (typed(tarfile.FIFOTYPE), "type b'6'"),
    "a sparse file": (typed(tarfile.GNUTYPE_SPARSE), "type b'S'"),
    "an extended header": (typed(tarfile.XHDTYPE), "type b'x'"),
    "a size that is not listed": (sized(1 << 40), "should come next"),
    "a file that may be run": (
        retar(lambda m: setattr(m[2][0], "mode", 0o4755)),
        "should come next",
    ),
    "a bomb of a manifest": (
        retar(lambda m: setattr(m[0][0], "size", 1 << 33)),
        "does not begin with bundle.json",
    ),
    "more than the disk can hold": (
        manifested(lambda d: d["files"][0].update(size=1 << 50)),
        "are needed",
    ),
    "a listed path upwards": (
        manifested(lambda d: d["files"][0].update(path="../evil")),
        "Expected a plain relative path",
    ),
    "a manifest that lists itself": (
        manifested(lambda d: d["files"][0].update(path=MANIFEST)),
        "Expected a plain relative path",
    ),
    "a newer schema": (manifested(lambda d: d.update(schema=9)), "schema 9"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_that_is_not_what_pack_writes_leaves_nothing_behind(
    packed: Path, tmp_path: Path, attack: str
) -> None:
    change, says = ATTACKS[attack]
    packed.write_bytes(change(packed.read_bytes()))
    with pytest.raises((BundleError, InputError), match=says) as error:
        unpack(packed, tmp_path / "in/there")
    assert str(packed) in str(error.value)
    assert ".partial" not in str(error.value)
    assert os.listdir(tmp_path) == ["packed.vcs"]


def test_two_bundles_make_one_that_scores_as_they_do(sat: Path, tiny: Path, tmp_path: Path) -> None:
    merge(tiny, sat, tmp_path / "both", name="both")
    made = open_bundle(tmp_path / "both", full=True)
    assert made.manifest.name == "both"
    assert made.manifest.segmenter
    assert made.manifest.segmenter.model
    assert made.manifest.segmenter.model.model.startswith("segmenter/")
    pair = (story(1), story(2))
    with (
        Scorer.open(made.root, device="cpu") as one,
        Scorer.open(tiny, "cpu", segmenter=str(sat)) as two,
    ):
        assert one.score(*pair) == two.score(*pair)


def test_a_made_bundle_shares_its_files_where_the_disk_allows(
    sat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = build_layout_bundle(tmp_path / "packed", "packed")
    merge(packed, sat, tmp_path / "linked")
    data = "embedder/model.onnx.data"
    assert (tmp_path / "linked" / data).samefile(packed / data)

    def refuse(*_: object) -> None:
        raise OSError("another file system")

    monkeypatch.setattr(os, "link", refuse)
    merge(packed, sat, tmp_path / "copied")
    assert not (tmp_path / "copied" / data).samefile(packed / data)
    assert contents(tmp_path / "copied") == contents(tmp_path / "linked")
    with Embedder.open(packed, "cpu") as old, Embedder.open(tmp_path / "copied", "cpu") as new:
        assert np.array_equal(old.embed(["dog"]), new.embed(["dog"]))


def test_engines_that_are_not_there_cannot_be_combined(
    sat: Path, tiny: Path, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="it holds no embedder"):
        merge(sat, tiny, tmp_path / "x")
    with pytest.raises(BundleError, match="it holds no segmenter"):
        merge(tiny, build_layout_bundle(tmp_path / "e", "packed"), tmp_path / "x")
    with pytest.raises(InputError, match="exists already"):
        merge(tiny, sat, tmp_path / "e")
    assert os.listdir(tmp_path) == ["e"]


def test_rules_and_the_rest_come_along_and_other_engines_do_not(
    tiny: Path, mixed: Path, tmp_path: Path
) -> None:
    merge(tiny, tiny, tmp_path / "rules")
    made = open_bundle(tmp_path / "rules").manifest
    assert made.segmenter
    assert made.segmenter.rules
    assert not made.segmenter.model
    merge(tiny, mixed, tmp_path / "mixed")
    merge(tmp_path / "mixed", tiny, tmp_path / "again")
    assert not any(
        e.path.startswith("segmenter/") for e in open_bundle(tmp_path / "again").manifest.files
    )


def test_the_commands(tiny: Path, sat: Path, tmp_path: Path) -> None:
    told = vcs("bundle", "info", tiny)
    assert told.code == 0
    assert "tiny-bert@" in told.stdout
    assert "rules: sentencex, en" in told.stdout
    assert json.loads(vcs("bundle", "info", tiny, "--json").stdout)["name"] == "tiny-bert"
    assert "all match bundle.json" in vcs("bundle", "verify", tiny).stdout
    assert vcs("bundle", "pack", tiny, "-o", tmp_path / "p").code == 0
    assert vcs("bundle", "unpack", tmp_path / "p", "-o", tmp_path / "u").code == 0
    made = vcs(
        "bundle", "make", "--embedder", tmp_path / "u", "--segmenter", sat, "-o", tmp_path / "m"
    )
    assert (made.code, made.stdout.strip()) == (0, str(tmp_path / "m"))
    (tmp_path / "u/extra").write_text("x")
    for arguments in (
        ("verify", tmp_path / "u"),
        ("unpack", tmp_path / "none", "-o", tmp_path / "n"),
    ):
        done = vcs("bundle", *arguments)
        assert done.code == 2
        assert len(done.stderr.strip().splitlines()) == 1
