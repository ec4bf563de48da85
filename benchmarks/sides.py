"""One side of a comparison, in a process of its own, so that neither side's memory or threads touch the other's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def peak_mb(process: int | str = "self") -> float:
    """Peak resident memory of a process; 0 if it has ended. (`getrusage` would count the parent's, too.)"""
    return _status_mb("VmHWM", process)


def resident_mb(process: int | str = "self") -> float:
    """Resident memory of a process now; 0 if it has ended."""
    return _status_mb("VmRSS", process)


def own_mb() -> float:
    """Resident memory of this process that is no file's."""
    return _status_mb("RssAnon")


def _status_mb(field: str, process: int | str = "self") -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@contextmanager
def work_folder(folder: Path | None) -> Iterator[Path]:
    """Give the folder, which stays with what is put into it, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


@contextmanager
def tree(name: str) -> Iterator[tuple[str, Path]]:
    """Give the name and the folder of another version: a checkout, or a git revision, checked out for the time being."""
    here = Path(__file__).parents[1]
    if Path(name).is_dir():
        yield name, Path(name)
        return
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "--short=7", f"{name}^{{commit}}"],
        cwd=here, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        sys.exit(f"{name}: neither a folder nor a git revision")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "tree")
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", place, found.stdout.strip()],
            cwd=here,
            check=True,
        )
        try:
            yield found.stdout.strip(), place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place], cwd=here, check=True)


def measure(script: str, folder: Path, **work: Any) -> dict[str, Any]:
    """Run `script --child FILE`, where FILE, in `folder`, holds `work`; returns the JSON of its last line."""
    path = folder / "work.json"
    path.write_text(json.dumps(work), "utf-8")
    done = subprocess.run(
        [sys.executable, script, "--child", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
