"""What must hold for every command, whatever it was given."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from unittest.mock import patch

from support.command_line import Finished, vcs

CODES = (0, 1, 2)
_SHOWN = 1500

Snapshot = Mapping[str, tuple[object, ...]]


def run(*arguments: object, stdin: bytes = b"") -> Finished:
    """Run `vcs-runtime` in this process, as its script does, with this standard input."""
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")):
        return vcs(*arguments)


def complaints_about(
    done: Finished, arguments: Iterable[object], *, codes: Iterable[int] = CODES, names: Iterable[str] = ()
) -> list[str]:
    """Say what is wrong with how a command ended.

    The exit code is a documented one. Nothing is a traceback, controls a terminal or reports a defect. An
    error is one line, or click's usage, and names one of `names`.
    """
    said = f"{' '.join(map(repr, map(str, arguments)))[:_SHOWN]}: exit code {done.code}: {done.stderr[-_SHOWN:]!r}"
    found = []
    if done.code not in codes:
        found.append(f"wrong exit code: {said}")
    for mark in ("Traceback (most recent call last)", "a defect of vcs-runtime", "out of memory"):
        if mark in done.stderr or mark in done.stdout:
            found.append(f"{mark}: {said}")
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        if bad := next(filter(_controls, text), None):
            if name == "stdout" and "json" in "".join(map(str, arguments)):
                continue  # JSON in ASCII
            found.append(f"{bad!r} on {name}: {said}")
    if done.code == 2:
        lines = done.stderr.splitlines()
        # What is wrong may come out after some texts are read, and notes about these stand first.
        said_by_us = [line.startswith("vcs-runtime: ") for line in lines]
        told = lines[said_by_us.index(False) :] if False in said_by_us else []
        usage = told and told[0].startswith("Usage: ") and any(line.startswith("Error: ") for line in told)
        if not lines or (told and not usage):
            found.append(f"the error is not one line: {said}")
        names = list(names)
        if names and not any(name in done.stderr for name in names):
            found.append(f"the error names none of {names}: {said}")
    return found


def _controls(character: str) -> bool:
    """Whether a character may control a terminal, or break its lines; joiners of emoji do not."""
    return character not in "\n\u200c\u200d" and unicodedata.category(character) in (
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    )


def snapshot(folder: Path) -> Snapshot:
    """Note every file below a folder, so that a change can be seen."""
    noted: dict[str, tuple[object, ...]] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            state = os.lstat(path)
            is_folder = name in folders
            noted[os.path.relpath(path, folder)] = (
                state.st_mode,
                *(() if is_folder else (state.st_size, state.st_mtime_ns, state.st_ino)),
            )
    return noted


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """List what was made, changed or removed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
