"""Shared code of the scripts: arguments, sides in processes of their own, and figures in JSON.

Figures are stored in `results/figures/PLACE/SCRIPT.json`. PLACE is the processor if figures depend
on it, as speeds do, and otherwise `any`. A file has rows. A row contains what one call measured in
one run: a workload, and the figures of each side, or the finished cells of a table. A new run of a
workload replaces the old row, so a script can be run in parts. Each row has its date, the revision
of the measured code, and versions of packages. If a model was used, the row also has the signatures
of its scores. `tables.py` writes the manual's tables from these files.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ["VCS_RUNTIME_CACHE"] = "none"  # vectors are computed, not read from the cache
FOLDER = Path(__file__).parent / "results/figures"
ANY = "any"
# Features that decide how fast matrix products are, by their names in /proc/cpuinfo, oldest first.
FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI",
    "avx512_bf16": "BF16",
    "amx_bf16": "AMX",
}
PACKAGES = (
    "onnxruntime",
    "openvino",
    "numpy",
    "numba",
    "torch",
    "transformers",
    "sentence-transformers",
    "fastembed",
    "wtpsplit",
    "wtpsplit-lite",
    "video-comprehension-score",
)


def processor() -> dict[str, Any]:
    """Return name, vendor, features and number of cores of this machine's processor."""
    info = Path("/proc/cpuinfo").read_text("utf-8")
    flags = re.search(r"^flags\s*:(.*)$", info, re.M)[1].split()
    name = re.search(r"^model name\s*:\s*(.*)$", info, re.M)[1]
    name = " ".join(re.sub(r"\((R|TM)\)|\bProcessor\b|\bCPU\b|@.*", " ", name).split())
    return {
        "name": name,
        "features": [FEATURES[flag] for flag in FEATURES if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
    }


def key(processor: dict[str, Any]) -> str:
    """Return the folder of a processor: its name, and the last of its features."""
    words = f"{processor['name']} {processor['features'][-1]}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def revision() -> str:
    """Return the last revision that changed what is measured, with "+" if its files were changed
    since.

    In a source archive, which knows no revisions, it is the version.
    """
    here = Path(__file__).parents[1]
    measured = ["--", "runtime", "vcs_numba", "export"]
    last = ["git", "log", "-1", "--abbrev=7", "--format=%h", *measured]
    changed = ["git", "status", "--porcelain", "--untracked-files=no", *measured]
    try:
        head, changes = (
            subprocess.run(
                command, cwd=here, capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (last, changed)
        )
    except (OSError, subprocess.CalledProcessError):
        head, changes = "", ""
    if not head:
        return metadata.version("vcs-runtime")
    return head + ("+" if changes else "")


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that the figures depend on."""
    result = {}
    for name in PACKAGES:
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return result


def keep(
    script: str,
    rows: list[dict[str, Any]],
    folder: Path = FOLDER,
    *,
    place: str | None = None,
    source: str | None = None,
) -> Path:
    """Write rows into a file; rows with the same `workload` are replaced.

    A row has `workload`, `sides` (figures by the name of the side) or `cells` (texts by the head of
    the column), and what else belongs to the run. `place` is this machine's processor unless it is
    `ANY`. `source` is a sentence that says where the figures come from, if this machine has not
    measured them; such rows bring their own `date` and `revision`.
    """
    machine = processor()
    path = folder / (place or key(machine)) / f"{script}.json"
    record = (
        json.loads(path.read_text("utf-8")) if path.exists() else {"processor": machine, "rows": []}
    )
    common = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "revision": revision(),
        "versions": versions(),
    }
    known = {row["workload"]: row for row in record["rows"]}
    known |= {row["workload"]: common | row for row in rows}
    record["rows"] = list(known.values())
    # No row of another machine is left.
    if known.keys() == {row["workload"] for row in rows}:
        record.pop("source", None)
        record.pop("model", None)
    if source:
        record = {"source": source, "rows": record["rows"]}
    elif place == ANY:
        record["processor"] = machine  # of the latest run
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return path


def parser_of(doc: str | None, keeps: bool = True) -> argparse.ArgumentParser:
    """Return a parser that shows the script's first lines, with the option `--keep` if the script
    keeps figures."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if keeps:
        parser.add_argument(
            "--keep", action="store_true", help="write the figures into results/figures"
        )
    return parser


def measure(script: str, folder: Path, **work: Any) -> dict[str, Any]:
    """Run `script --child FILE`, where FILE, in `folder`, holds `work`; returns the JSON of its
    last line.

    A side in a process of its own neither shares memory nor threads with the others.
    """
    path = folder / "work.json"
    path.write_text(json.dumps(work), "utf-8")
    command = [sys.executable, script, "--child", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@contextmanager
def work_folder(folder: Path | None) -> Iterator[Path]:
    """Give the folder, which stays with what is put into it, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def peak_mb(process: int | str = "self") -> float:
    """Peak resident memory of a process; 0 if it has ended.

    (`getrusage` would count the parent's, too.)
    """
    return status_mb("VmHWM", process)


def status_mb(field: str, process: int | str = "self") -> float:
    """A field of a process's status, such as `VmRSS`, its resident memory; 0 if it has ended."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0
