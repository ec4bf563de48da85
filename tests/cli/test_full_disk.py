"""On a full disk a command says so in one line, keeps what was there, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import full_disk
from support.command_line import vcs
from support.needed import needs
from support.processes import captured
from vcs_runtime.capi.build import HEADER, SONAME, find_tools
from vcs_runtime.errors import BuildError

FULL = "No space left on device"
CAPI = {f"lib/{name}": "old vcs_runtime" for name in (SONAME, HEADER, "vcs_runtime.pc")}
# What lies on the disk before and after, and the file that the error names.
CASES: dict[str, tuple[dict[str, str], str]] = {
    "html": ({"r.html": "old"}, f"r.html: {FULL}"),
    "pdf": ({"r.pdf": "old"}, f"r.pdf: {FULL}"),
    "pack": ({"b.tar": "bundle.json\0 of old"}, f"b.tar: {FULL}"),
    "unpack": ({}, "are needed"),
    "make": ({}, f"made: {FULL}"),
    "triton": ({}, f"new/models: {FULL}"),
    "results": ({"results.json": "old", "table.csv": "old"}, f"results.json: {FULL}"),
    "table": ({"table.csv": "old"}, f"table.csv: {FULL}"),
    "export": ({}, f"deep/exported: {FULL}"),
    "capi": (CAPI, f"lib/{SONAME}: {FULL}"),
}


@pytest.fixture(scope="module")
def finished(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the commands of all cases left on a full disk."""
    if (
        sys.platform != "linux"
        or subprocess.run(["unshare", "-rm", "true"], check=False).returncode
    ):
        pytest.skip("this system lets nobody mount a disk of their own")
    folder = tmp_path_factory.mktemp("full")
    packed, pairs, disk = folder / "b.tar", folder / "pairs.jsonl", folder / "disk"
    disk.mkdir()
    assert vcs("bundle", "pack", tiny_bundle, "-o", packed).code == 0
    pairs.write_text('{"reference": "A man opens a door.", "generated": "A door opens."}\n')
    texts = (folder / "reference.txt", folder / "generated.txt")
    for path in texts:
        path.write_text("A man opens a door. The dog runs.")
    opened = ["--bundle", tiny_bundle, "--device", "cpu"]
    commands = {
        "html": ["report", pairs, "-o", "DISK/r.html", "--overwrite", *opened],
        "pdf": ["report", *texts, "-o", "DISK/r.pdf", "--overwrite", *opened],
        "pack": ["bundle", "pack", tiny_bundle, "-o", "DISK/b.tar", "--overwrite"],
        "unpack": ["bundle", "unpack", packed, "-o", "DISK/new/b"],
        "make": [
            *f"bundle make --embedder {tiny_bundle} --segmenter {tiny_bundle}".split(),
            "-o",
            "DISK/new/made",
        ],
        "triton": ["triton", "export", "DISK/new/models", "--copy-bundle", *opened],
        "results": ["results", "DISK"],
        "table": ["table", "DISK/table.csv"],
        "export": [
            *f"export encoder --from {tiny_bundle.parent}/checkpoint".split(),
            "-o",
            "DISK/deep/exported",
        ],
        "capi": ["capi", "build", "-o", "DISK/lib"],
    }
    given = {
        name: ([str(part) for part in command], CASES[name][0])
        for name, command in commands.items()
    }
    try:
        find_tools()
    except BuildError:
        del given["capi"]
    done = captured(
        ["unshare", "-rm", sys.executable, full_disk.__file__, disk],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: What a case needs of an extra.
LIBRARIES = {"pdf": "matplotlib", "capi": "cffi"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[needs(LIBRARIES[case])] if case in LIBRARIES else [])
        for case in CASES
    ],
)
def test_a_full_disk_is_named_and_nothing_is_lost_or_left(finished: Any, case: str) -> None:
    if case not in finished:
        pytest.skip("nothing to compile with")
    code, said, left = finished[case]
    before, reason = CASES[case]
    assert code == 2
    assert reason in said
    assert len(said.splitlines()) == 1
    folders = {str(Path(name).parent): "" for name in before if "/" in name}
    assert left == before | folders
