"""Hostile and damaged bundles, packed or not: nothing outside is read or written."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, changed, run, snapshot
from attack.drawn import STRINGS, cases, chance, damaged, exchanged
from support.stories import read_lines
from vcs_runtime.bundle.integrity import sha256_of

MANIFEST = "bundle.json"
NAMES = ("../secret", "/evil", "embedder/../../secret", "x" * 200, MANIFEST, "a/\udcff")
TYPES = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
LIES = ("../secret", "/etc/passwd", "a\nb", "embedder/../../secret", "a" * 5000, *STRINGS)
COMMANDS = (
    "score PAIRS -o HERE/scores.jsonl --bundle HERE/bundle --device cpu",
    "score PAIRS -o HERE/scores.jsonl --bundle HERE/bundle --device cpu",
    "bundle verify HERE/bundle",
    "bundle info HERE/bundle",
    "bundle pack HERE/bundle -o HERE/packed.tar",
    "export verify HERE/bundle",
)


def harm(draw: st.DrawFn, bundle: Path) -> bool:
    """Damage a bundle; returns whether its hashes are those of the damaged files."""
    files = [path for path in sorted(bundle.rglob("*")) if path.is_file()]
    manifest = bundle / MANIFEST
    data = json.loads(manifest.read_text())
    kind = draw(
        st.sampled_from(
            ("bytes", "bytes", "manifest", "values", "special", "lie", "relisted", "relisted")
        )
    )
    target = manifest if kind in ("manifest", "values") else draw(st.sampled_from(files))
    if kind in ("bytes", "manifest"):
        target.write_bytes(draw(damaged(target.read_bytes())))
    elif kind == "values":
        manifest.write_text(json.dumps(draw(exchanged(data))))
    elif kind == "special":
        target.unlink()
        draw(
            st.sampled_from(
                (
                    lambda: None,
                    lambda: target.symlink_to(bundle.parent / "secret"),
                    lambda: os.mkfifo(target),
                    target.mkdir,
                    lambda: target.symlink_to("/dev/zero"),
                )
            )
        )()
    elif kind == "lie":
        draw(st.sampled_from(data["files"]))["path"] = draw(st.sampled_from(LIES))
        manifest.write_text(json.dumps(data))
    elif target != manifest:
        # The attacker's own hashes: a graph or a tokenizer that is not what it was.
        if target.suffix == ".json":
            target.write_text(json.dumps(draw(exchanged(json.loads(target.read_text())))))
        else:
            target.write_bytes(draw(damaged(target.read_bytes())))
        for entry in data["files"]:
            entry["size"] = (bundle / entry["path"]).stat().st_size
            entry["sha256"] = sha256_of(bundle / entry["path"])
        manifest.write_text(json.dumps(data))
        return True
    return False


@cases(15)
@given(command=st.sampled_from(COMMANDS), data=st.data())
def test_a_damaged_bundle_is_refused_or_has_its_own_signature(
    files: Path, tiny_bundle: Path, command: str, data: st.DataObject
) -> None:
    with case_folder(tiny_bundle, "bundle") as folder:
        (folder / "secret").write_text("what must not be read or written")
        output, bundle = folder / "scores.jsonl", str(folder / "bundle")
        relisted = harm(data.draw, folder / "bundle")
        before = snapshot(folder)
        words = (
            command.replace("HERE", str(folder))
            .replace("PAIRS", str(files / "pairs.jsonl"))
            .split()
        )
        done = run(*words, names=(bundle, "tiny-bert: "))
        # What was finished before a model failed is kept.
        failed = any(
            said in done.stderr
            for said in ("tiny-bert: the model", "model.onnx: ONNX Runtime failed")
        )
        own = {"scores.jsonl"} if done.code != 2 or failed else set()
        own |= {"packed.tar"} if done.code == 0 else set()
        assert set(changed(before, folder)) <= own, done
        if output.exists() and done.code != 2 and not relisted:
            for line, right in zip(
                read_lines(output), read_lines(files / "scores.jsonl"), strict=True
            ):
                assert line["signature"] != right["signature"] or line == right


@st.composite
def repacked(draw: st.DrawFn, packed: bytes) -> bytes:
    """A packed bundle with an entry that lies: links, devices, paths upwards, sizes, doubles."""
    stream = io.BytesIO()
    kind = draw(st.sampled_from(("name", "type", "size", "missing", "twice", "mode")))
    with tarfile.open(fileobj=io.BytesIO(packed)) as given:
        entries = [(member, given.extractfile(member)) for member in given.getmembers()]
        contents = [(member, file.read() if file else b"") for member, file in entries]
    at = draw(st.integers(0, len(contents) - 1))
    member, content = contents[at]
    if kind == "missing":
        del contents[at]
    elif kind == "twice":
        contents.append(contents[at])
    elif kind == "size":
        member.size = 1 << 20
        contents[at] = member, bytes(1 << 20)
    elif kind == "type":
        member.type, member.size = draw(st.sampled_from(TYPES)), 0
        member.linkname = draw(st.sampled_from(("../secret", "/etc/passwd", MANIFEST)))
    elif kind == "name":
        member.name = draw(st.sampled_from(NAMES))
    else:
        member.mode, member.uid, member.mtime = 0o4777, 1234, 1
    form = draw(st.sampled_from((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)))
    with tarfile.open(fileobj=stream, mode="w", format=form) as made:
        for member, content in draw(st.permutations(contents)) if chance(draw, 20) else contents:
            made.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def check_packed(tiny_bundle: Path, content: bytes, packed: bytes) -> None:
    """Unpack a bundle: it is refused and nothing is left, or is the whole one."""
    with case_folder() as folder:
        source, target = folder / "packed.tar", folder / "deep" / "bundle"
        (folder / "secret").write_text("what must not be read or written")
        source.write_bytes(content)
        before = snapshot(folder)
        done = run("bundle", "unpack", source, "-o", target, names=(str(source), str(target)))
        made = changed(before, folder)
        if done.code == 0:
            same = content == packed or files_below(target) == files_below(tiny_bundle)
            assert same, "accepted, and it is another bundle"
            made = [name for name in made if name != "deep" and not name.startswith("deep/bundle")]
        assert not made, done


def files_below(folder: Path) -> dict[Path, bytes | None]:
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@cases(15)
@given(lies=st.booleans(), data=st.data())
def test_a_damaged_packed_bundle_is_refused_or_whole(
    files: Path, tiny_bundle: Path, lies: bool, data: st.DataObject
) -> None:
    packed = (files / "packed.tar").read_bytes()
    check_packed(tiny_bundle, data.draw(repacked(packed) if lies else damaged(packed)), packed)


def test_other_weights_that_are_taken_are_seen(files: Path, tiny_bundle: Path, plant: Any) -> None:
    def copy(source: Any, output: Any, entry: Any, name: str, advance: Any) -> None:
        output.write(source.read(entry.size))

    packed = (files / "packed.tar").read_bytes()
    with tarfile.open(files / "packed.tar") as archive:
        at = archive.getmember("embedder/model.onnx").offset_data + 100
    flipped = packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]
    check_packed(tiny_bundle, flipped, packed)
    plant("vcs_runtime.bundle.archive.copy_checked", lambda _: copy)
    with pytest.raises(AssertionError, match="another bundle"):
        check_packed(tiny_bundle, flipped, packed)
