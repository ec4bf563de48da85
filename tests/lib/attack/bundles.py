"""Door: bundles and packed bundles of an attacker, or damaged on the way."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attack.cases import Attack, Door, Ground
from attack.checks import changed, complaints_about, run, snapshot
from attack.damage import STRINGS, damaged, value
from support.command_line import vcs
from support.stories import story, write_pairs
from vcs_runtime.bundle.integrity import sha256_of

MANIFEST = "bundle.json"


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    template = ground.folder / "bundles"
    template.mkdir(parents=True)
    write_pairs(
        template / "pairs.jsonl",
        [{"id": i, "reference": story(i), "generated": story(9 + i)} for i in range(2)],
    )
    packed = template / "packed.tar"
    assert vcs("bundle", "pack", ground.bundle, "-o", packed).code == 0
    assert vcs("score", template / "pairs.jsonl", "-o", template / "right.jsonl", *ground.engine).code == 0
    right = [json.loads(line) for line in (template / "right.jsonl").read_text().splitlines()]

    def attack(rng: random.Random, folder: Path) -> list[str]:
        if rng.random() < 0.4:
            return _packed(rng, folder, packed.read_bytes(), ground)
        return _folder(rng, folder, template / "pairs.jsonl", ground, right)

    yield attack


def _folder(rng: random.Random, folder: Path, pairs: Path, ground: Ground, right: list[Any]) -> list[str]:
    bundle = folder / "bundle"
    shutil.copytree(ground.bundle, bundle)
    (folder / "secret").write_text("what must not be read or written")
    relisted = _harm(rng, bundle)
    before = snapshot(folder)
    output = folder / "scores.jsonl"
    arguments: list[Any] = rng.choice((
        ["score", pairs, "-o", output, "--bundle", bundle, "--device", "cpu"],
        ["score", pairs, "-o", output, "--bundle", bundle, "--device", "cpu"],
        ["bundle", "verify", bundle],
        ["bundle", "info", bundle],
        ["bundle", "pack", bundle, "-o", folder / "packed.tar"],
        ["export", "verify", bundle],
    ))  # fmt: skip
    done = run(*arguments)
    found = complaints_about(done, arguments, names=(str(bundle), "tiny-bert: "))
    # What was finished before a model failed is kept.
    failed = any(said in done.stderr for said in ("tiny-bert: the model", "model.onnx: ONNX Runtime failed"))
    own = {"scores.jsonl"} if done.code != 2 or failed else set()
    own |= {"packed.tar"} if done.code == 0 else set()
    if made := [name for name in changed(before, snapshot(folder)) if name not in own]:
        found.append(f"{made} changed: {arguments}: {done}")
    if output.exists() and done.code == 0 and not relisted:
        lines = [json.loads(line) for line in output.read_text().splitlines()]
        for line, wanted in zip(lines, right, strict=True):
            if line["signature"] == wanted["signature"] and line != wanted:
                found.append(f"the signature is that of the whole bundle, and the scores are not: {line}")
    return found


def _harm(rng: random.Random, bundle: Path) -> bool:
    """Damage a bundle; returns whether its hashes are those of the damaged files."""
    files = [path for path in sorted(bundle.rglob("*")) if path.is_file()]
    manifest = bundle / MANIFEST
    kind = rng.randrange(8)
    if kind < 2:
        target = rng.choice(files)
        target.write_bytes(damaged(rng, target.read_bytes()))
        return False
    if kind == 2:
        content = bytearray(manifest.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        manifest.write_bytes(content)
        return False
    if kind == 3:
        data = json.loads(manifest.read_text())
        _exchange(rng, data)
        manifest.write_text(json.dumps(data))
        return False
    if kind == 4:
        target = rng.choice(files)
        target.unlink()
        rng.choice((
            lambda: None, lambda: target.symlink_to(bundle.parent / "secret"), lambda: os.mkfifo(target), target.mkdir,
            lambda: target.symlink_to("/dev/zero"),
        ))()  # fmt: skip
        return False
    if kind == 5:
        data = json.loads(manifest.read_text())
        entry = rng.choice(data["files"])
        entry["path"] = rng.choice(
            ("../secret", "/etc/passwd", "a\nb", "embedder/../../secret", "a" * 5000, *STRINGS)
        )
        manifest.write_text(json.dumps(data))
        return False
    # The attacker's own hashes: a graph or a tokenizer that is not what it was.
    target = rng.choice([path for path in files if path.name != MANIFEST])
    if target.name.endswith(".json"):
        data = json.loads(target.read_text())
        _exchange(rng, data)
        target.write_text(json.dumps(data))
    else:
        target.write_bytes(damaged(rng, target.read_bytes()))
    data = json.loads(manifest.read_text())
    for entry in data["files"]:
        entry["size"] = (bundle / entry["path"]).stat().st_size
        entry["sha256"] = sha256_of(bundle / entry["path"])
    manifest.write_text(json.dumps(data))
    return True


def _exchange(rng: random.Random, data: Any) -> None:
    """Exchange or remove a value somewhere in JSON."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(data[key], dict | list) and data[key] and rng.random() < 0.8:
            data = data[key]
            continue
        if rng.random() < 0.25:
            del data[key]
        elif isinstance(data[key], int) and rng.random() < 0.6:
            data[key] = rng.choice((0, 1, -1, data[key] + 1, 2**31, 2**40))
        else:
            data[key] = value(rng)
        return


def _packed(rng: random.Random, folder: Path, whole: bytes, ground: Ground) -> list[str]:
    source, target = folder / "packed.tar", folder / "deep" / "bundle"
    (folder / "secret").write_text("what must not be read or written")
    content, harmed = _repacked(rng, whole)
    source.write_bytes(content)
    before = snapshot(folder)
    arguments = ["bundle", "unpack", source, "-o", target]
    done = run(*arguments)
    found = complaints_about(done, arguments, names=(str(source), str(target)))
    made = changed(before, snapshot(folder))
    if done.code == 0:
        if harmed and content != whole and not _equal(ground.bundle, target):
            found.append(f"accepted, and it is another bundle: {done}")
        made = [name for name in made if name != "deep" and not name.startswith("deep/bundle")]
    if made:
        found.append(f"{made} changed: exit code {done.code}: {done.stderr}")
    return found


def _equal(left: Path, right: Path) -> bool:
    names = {path.relative_to(left) for path in left.rglob("*")}
    return names == {path.relative_to(right) for path in right.rglob("*")} and all(
        (left / name).read_bytes() == (right / name).read_bytes() for name in names if (left / name).is_file()
    )


def _repacked(rng: random.Random, whole: bytes) -> tuple[bytes, bool]:
    """A packed bundle with damaged bytes, or with entries that lie: links, devices, paths upwards, sizes, bombs."""
    if rng.random() < 0.5:
        return damaged(rng, whole), True
    stream = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(whole)) as given,
        tarfile.open(
            fileobj=stream, mode="w", format=rng.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
        ) as made,
    ):
        members = given.getmembers()
        chosen = rng.randrange(len(members))
        order = members if rng.random() < 0.8 else rng.sample(members, len(members))
        for member in order:
            data = given.extractfile(member)
            content = data.read() if data else b""
            if member is members[chosen]:
                match rng.randrange(6):
                    case 0:
                        member.name = rng.choice(
                            (
                                "../secret",
                                "/tmp/evil",
                                "embedder/../../secret",
                                "x" * 200,
                                "bundle.json",
                                "a/\udcff",
                            )
                        )
                    case 1:
                        member.type = rng.choice(
                            (
                                tarfile.SYMTYPE,
                                tarfile.LNKTYPE,
                                tarfile.FIFOTYPE,
                                tarfile.CHRTYPE,
                                tarfile.DIRTYPE,
                            )
                        )
                        member.linkname, member.size, content = (
                            rng.choice(("../secret", "/etc/passwd", "bundle.json")),
                            0,
                            b"",
                        )
                    case 2:
                        content = bytes(1 << 20)
                        member.size = len(content)
                    case 3:
                        continue
                    case 4:
                        made.addfile(member, io.BytesIO(content))
                    case 5:
                        member.mode, member.uid, member.mtime = 0o4777, 1234, 1
            made.addfile(member, io.BytesIO(content))
    return stream.getvalue(), True


BUNDLES = Door("bundles", 8, "bundles and packed bundles, damaged and hostile", _open)
