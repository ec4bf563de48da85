"""Tiny wheels and source archives, a folder of which is a package index without a network."""

from __future__ import annotations

import base64
import ensurepip
import hashlib
import io
import os
import shutil
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from vcs_runtime import __version__

# What `install.py` calls, for an installation that is too small to score anything.
_STAND_IN = """\
import os, sys

def main():
    print("ran", *sys.argv[1:], "in", sys.prefix)
    sys.exit(int(os.environ.get("STAND_IN_EXIT", 0)) if sys.argv[1] == "doctor" else 0)
"""


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    requires: Sequence[str] = (),
    extras: Sequence[str] = (),
    tag: str = "py3-none-any",
    files: Mapping[str, str] | None = None,
    about: Mapping[str, str] | None = None,
    licence: str = "MIT",
) -> Path:
    """Write a wheel. `files` are contents by path, `about` the same in its folder of metadata."""
    module = name.replace("-", "_")
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        f"License-Expression: {licence}",
    ]
    lines += [f"Provides-Extra: {extra}" for extra in extras] + [
        f"Requires-Dist: {text}" for text in requires
    ]
    info = f"{module}-{version}.dist-info"
    contents = {
        f"{module}/__init__.py": "",
        **(files or {}),
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
        ),
        **{f"{info}/{path}": text for path, text in (about or {}).items()},
    }
    rows = []
    for path, text in contents.items():
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        )
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    wheel = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return wheel


def write_source(folder: Path, name: str, version: str, tag: str = "py3-none-any") -> Path:
    """Write a source archive that builds a tagged wheel by its own backend, offline."""
    module = name.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    backend = f"""\
import zipfile
INFO = "{module}-{version}.dist-info"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as archive:
        archive.writestr("{module}.py", "")
        archive.writestr(INFO + "/METADATA", {metadata!r})
        archive.writestr(INFO + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: \
{tag}\\n")
        archive.writestr(INFO + "/RECORD", "{module}.py,,\\n")
    return name
"""
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    archive = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path, text in {
            "PKG-INFO": metadata,
            "pyproject.toml": project,
            "backend.py": backend,
        }.items():
            info = tarfile.TarInfo(f"{name}-{version}/{path}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return archive


def write_own(folder: Path, *, requires: Sequence[str] = (), version: str = __version__) -> Path:
    """Write a wheel named vcs-runtime, whose command says how it was called."""
    extras = ("cpu", "default", "gpu", "parity", "heavy", "colours", "sourced")
    return write_wheel(
        folder,
        "vcs-runtime",
        version,
        requires=[
            "tiny-base>=1",
            'onnxruntime>=1; extra == "cpu"',
            'onnxruntime-gpu>=1; extra == "gpu"',
            'tiny-rules[words]>=1; extra == "default"',
            'torch>=1; extra == "parity"',
            'tiny-heavy; extra == "heavy"',
            'tiny-colours; extra == "colours"',
            'tiny-sourced>=0.1; extra == "sourced"',
            *requires,
        ],
        extras=extras,
        files={"stand_in.py": _STAND_IN},
        about={
            "entry_points.txt": "[console_scripts]\nvcs-runtime = stand_in:main\n",
            "licenses/LICENSE": "A",
        },
        licence="Apache-2.0",
    )


def write_index(folder: Path) -> Path:
    """Fill a folder with the packages that `write_own` may need, and with Python's pip."""
    folder.mkdir()
    write_wheel(
        folder,
        "tiny-base",
        requires=['tiny-windows; sys_platform == "win32"'],
        about={"LICENSE.txt": "B", "licenses/vendored/NOTICE": "C"},
    )
    write_wheel(folder, "tiny-windows")
    write_wheel(folder, "tiny-rules", requires=['tiny-words; extra == "words"'], extras=["words"])
    write_wheel(
        folder, "tiny-words", requires=['tiny-old; python_version < "3.11"'], licence="BSD-3-Clause"
    )
    write_wheel(folder, "tiny-old")
    write_wheel(folder, "tiny-heavy", requires=["torch"])
    write_wheel(folder, "torch")
    write_wheel(folder, "tiny-colours", requires=["onnxruntime-gpu"])
    for engine in ("onnxruntime", "onnxruntime-gpu"):
        for (
            platform
        ) in "manylinux_2_17_x86_64 manylinux_2_17_aarch64 macosx_11_0_arm64 win_amd64".split():
            write_wheel(folder, engine, tag=f"py3-none-{platform}")
    write_wheel(folder, "tiny-sourced", "0.0.1")  # an older wheel, as rouge-score has one
    write_source(folder, "tiny-sourced", "0.2")
    packaged = sysconfig.get_config_var("WHEEL_PKG_DIR")  # where Debian and Fedora keep it
    folders = [
        Path(ensurepip.__file__).parent / "_bundled",
        *([Path(packaged)] if packaged else []),
    ]
    bundled = [wheel for place in folders for wheel in place.glob("pip-*.whl")]
    if not bundled:
        pytest.skip("this Python has no wheel of pip")
    shutil.copy2(bundled[0], folder)
    return folder


def pip_offline(index: Path) -> dict[str, str]:
    """Return the variables that make pip look into a folder only."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
