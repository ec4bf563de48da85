"""Unpacks a kit that `kit.py` made, on a machine without a network. Only Python's standard library is needed.

    python3 KIT/unpack.py FOLDER        # then: PYTHONPATH=FOLDER/site python3 FOLDER/benchmarks/gpu/measure.py

Each archive of the kit is cut into parts. Archives whose parts are all beside this script are unpacked, side by side.
The parts may come one by one: archives that were unpacked before are skipped, and the last line says what is missing.
The exit code is 0 when all archives are unpacked, otherwise 1.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

KIT = "kit.json"


def unpack(archive: dict[str, Any], source: Path, target: Path) -> str:
    """Unpack one archive; returns "", or what is wrong with its parts."""
    done = target / f".{archive['name']}"
    if done.exists() and done.read_text("utf-8") == archive["sha256"]:
        return ""
    paths = [source / part for part in archive["parts"]]
    if missing := [path.name for path in paths if not path.is_file()]:
        return f"missing: {', '.join(missing)}"
    packed = b"".join(path.read_bytes() for path in paths)
    if hashlib.sha256(packed).hexdigest() != archive["sha256"]:
        return f"damaged: {', '.join(archive['parts'])}"
    with lzma.open(io.BytesIO(packed)) as stream, tarfile.open(fileobj=stream, mode="r|") as files:
        files.extractall(target, filter="data")
    done.write_text(archive["sha256"], "utf-8")
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to unpack")
    arguments = parser.parse_args()
    source = Path(__file__).resolve().parent
    kit = json.loads((source / KIT).read_text("utf-8"))
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != kit["python"]:
        sys.exit(f"this kit is for Python {kit['python']}, not {here}: make one with --python {here}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    archives = kit["archives"]
    with ProcessPoolExecutor(len(archives)) as pool:
        count = len(archives)
        wrong = list(filter(None, pool.map(unpack, archives, [source] * count, [arguments.folder] * count)))
    if wrong:
        sys.exit("; ".join(wrong))
    print(arguments.folder / "site")


if __name__ == "__main__":
    main()
