"""What must hold for every command, whatever it was given."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from support.command_line import Finished, vcs

CODES = (0, 1, 2)
_SHOWN = 1500

Snapshot = Mapping[str, tuple[object, ...]]


@contextmanager
def case_folder(template: Path | None = None) -> Iterator[Path]:
    """An empty folder for one case, or a copy of `template`."""
    with tempfile.TemporaryDirectory(prefix="vcs-attack-", ignore_cleanup_errors=True) as name:
        if template:
            shutil.copytree(template, name, dirs_exist_ok=True)
        yield Path(name)


def run(
    *arguments: object, stdin: bytes = b"", codes: Iterable[int] = CODES, names: Iterable[str] = ()
) -> Finished:
    """Run `vcs-runtime` in this process, as its script does, and check how it ends."""
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")):
        done = vcs(*arguments)
    check_end(done, arguments, codes=codes, names=names)
    return done


def check_end(
    done: Finished, arguments: Iterable[object], *, codes: Iterable[int] = CODES, names: Iterable[str] = ()
) -> None:
    """Check that a command ended as it may.

    The exit code is a documented one. Nothing is a traceback, controls a terminal or reports a defect. An
    error is one line, or click's usage, and names one of `names`.
    """
    given = " ".join(map(repr, map(str, arguments)))
    said = f"{given[:_SHOWN]}: exit code {done.code}: {done.stderr[-_SHOWN:]!r}"
    assert done.code in codes, f"wrong exit code: {said}"
    for mark in ("Traceback (most recent call last)", "a defect of vcs-runtime", "out of memory"):
        assert mark not in done.stderr + done.stdout, f"{mark}: {said}"
    assert not any(map(_controls, done.stderr)), f"controls a terminal: {said}"
    if "json" not in given:  # JSON in ASCII
        assert not any(map(_controls, done.stdout)), f"controls a terminal: {done.stdout!r}: {said}"
    if done.code == 2:
        lines = done.stderr.splitlines()
        # What is wrong may come out after some texts are read, and notes about these stand first.
        ours = [line.startswith("vcs-runtime: ") for line in lines]
        rest = lines[ours.index(False) :] if False in ours else []
        usage = rest and rest[0].startswith("Usage: ") and any(line.startswith("Error: ") for line in rest)
        assert lines, f"the error is not one line: {said}"
        assert usage or not rest, f"the error is not one line: {said}"
        names = list(names)
        assert not names or any(name in done.stderr for name in names), (
            f"the error names none of {names}: {said}"
        )


def _controls(character: str) -> bool:
    """Whether a character may control a terminal, or break its lines; joiners of emoji do not."""
    return character not in "\n\u200c\u200d" and unicodedata.category(character) in {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    }


def snapshot(folder: Path) -> Snapshot:
    """Note every file below a folder, so that a change can be seen."""
    noted: dict[str, tuple[object, ...]] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            state = os.lstat(path)
            content = () if name in folders else (state.st_size, state.st_mtime_ns, state.st_ino)
            noted[os.path.relpath(path, folder)] = (state.st_mode, *content)
    return noted


def changed(before: Snapshot, folder: Path) -> list[str]:
    """List what was made, changed or removed since."""
    after = snapshot(folder)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
