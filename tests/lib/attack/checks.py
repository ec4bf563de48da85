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
from typing import Any
from unittest.mock import patch

from support.command_line import Finished, vcs

CODES = (0, 1, 2)
Snapshot = Mapping[str, tuple[object, ...]]


@contextmanager
def case_folder(template: Path | None = None, under: str = ".") -> Iterator[Path]:
    """An empty folder for one case, with a copy of `template` in it."""
    with tempfile.TemporaryDirectory(prefix="vcs-attack-", ignore_cleanup_errors=True) as name:
        if template:
            shutil.copytree(template, Path(name, under), dirs_exist_ok=True)
        yield Path(name)


def run(
    *arguments: object, stdin: bytes = b"", codes: Iterable[int] = CODES, names: Iterable[str] = ()
) -> Finished:
    """Run `vcs-runtime` in this process, as its script does, and check how it ends."""
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")):
        done = vcs(*arguments)
    check_end(done, codes, names, json="json" in "".join(map(str, arguments)))
    return done


def check_end(
    done: Finished, codes: Iterable[int] = CODES, names: Iterable[str] = (), *, json: bool = False
) -> None:
    """Check that a command ended as it may.

    The exit code is a documented one. Nothing is a traceback, controls a terminal or reports a
    defect, but for JSON in ASCII. An error is one line, or click's usage, and names one of `names`.
    """
    assert done.code in codes, f"wrong exit code: {done}"
    for mark in ("Traceback (most recent call last)", "a defect of vcs-runtime", "out of memory"):
        assert mark not in done.stderr + done.stdout, done
    assert not set(filter(_controls, done.stderr if json else done.stderr + done.stdout)), done
    if done.code == 2:
        # What is wrong may come out after some texts are read, and notes about these stand first.
        ours = [line.startswith("vcs-runtime: ") for line in done.stderr.splitlines()]
        rest = done.stderr.splitlines()[ours.index(False) :] if False in ours else []
        usage = (
            rest
            and rest[0].startswith("Usage: ")
            and any(line.startswith("Error: ") for line in rest)
        )
        assert ours, f"no line for an error: {done}"
        assert usage or not rest, f"more than one line for an error: {done}"
        assert not names or any(name in done.stderr for name in names), (
            f"no name of {names}: {done}"
        )


def _controls(character: str) -> bool:
    """Whether a character may control a terminal, or break its lines; joiners of emoji do not."""
    control = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return character not in "\n\u200c\u200d" and unicodedata.category(character) in control


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
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def fails(_: Any) -> Any:
    """A function with a defect, to be planted in the place of another."""

    def fail(*arguments: object, **options: object) -> None:
        raise KeyError("x")

    return fail


def does_nothing(_: Any) -> Any:
    return lambda *arguments, **options: None
