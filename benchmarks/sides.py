"""One side of a comparison, in a process of its own, so that neither side's memory or threads touch the other's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any


def peak_mb() -> float:
    """Peak resident memory of this process. (`getrusage` would count the parent's at the start, too.)"""
    return _status_mb("VmHWM")


def resident_mb() -> float:
    """Resident memory of this process now."""
    return _status_mb("VmRSS")


def _status_mb(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


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
