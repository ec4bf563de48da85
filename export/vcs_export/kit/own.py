"""The wheel of the vcs-runtime that runs: built from its checkout, or from where it was installed from."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from vcs_export.errors import KitError
from vcs_export.installer import installer_reason, run_pip
from vcs_runtime._version import __version__

NAME = "vcs-runtime"
_HERE = Path(__file__).resolve()


def own_wheel(folder: Path, given: Path | None, log: Callable[[str], None]) -> Path:
    """Put the wheel of this very version into a folder."""
    if given is not None:
        _check_version(given)
        return Path(shutil.copy2(given, folder))
    if checkout := _checkout():
        log(f"building {NAME} {__version__} from the checkout {checkout}")
        return _wheel(str(checkout), folder)
    installed = _installed()
    origin = _file(installed)
    log(f"getting {NAME} {__version__} from {origin or 'the package index'}")
    wheel = _wheel(str(origin) if origin else f"{NAME}=={__version__}", folder)
    if differing := _difference(wheel, installed):
        raise KitError(
            f"{wheel.name} from {origin or 'the package index'} is not the installed {NAME}: {differing} "
            "differs: name the right wheel with --wheel"
        )
    return wheel


def _wheel(source: str, folder: Path) -> Path:
    done = run_pip("wheel", ["--quiet", "--no-deps", "--wheel-dir", str(folder), source])
    if done.returncode:
        raise KitError(
            f"there is no wheel of {source}: {installer_reason(done.stderr or done.stdout)} "
            "(name one with --wheel)"
        )
    [wheel] = folder.glob("*.whl")
    _check_version(wheel)
    return wheel


def _check_version(wheel: Path) -> None:
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename:
        raise KitError(f"{wheel}: this is no name of a wheel") from None
    if (name, str(version)) != (NAME, __version__):
        raise KitError(f"{wheel}: a kit holds the version that makes it, {NAME} {__version__}")


def _checkout() -> Path | None:
    """Return the folder of the project if this module runs from it."""
    root = _HERE.parents[3]
    settings = root / "pyproject.toml"
    if settings.is_file() and tomllib.loads(settings.read_text("utf-8"))["project"]["name"] == NAME:
        return root
    return None


def _installed() -> Distribution:
    try:
        return distribution(NAME)
    except PackageNotFoundError:
        raise KitError(
            f"{NAME} runs from a folder, and is not installed: name its wheel with --wheel"
        ) from None


def _file(installed: Distribution) -> Path | None:
    """Return the wheel or source archive that was installed, if pip noted one that still exists."""
    origin = urlsplit(json.loads(installed.read_text("direct_url.json") or "{}").get("url", ""))
    path = Path(url2pathname(origin.path))
    return path if origin.scheme == "file" and path.is_file() else None


def _difference(wheel: Path, installed: Distribution) -> str | None:
    """Name a file whose hash in the wheel is not the installed one; a builder may describe it differently."""
    with zipfile.ZipFile(wheel) as archive:
        [record] = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        ours = _hashes(archive.read(record).decode())
    theirs = _hashes(installed.read_text("RECORD") or "")
    return next((name for name, digest in ours.items() if theirs.get(name) != digest), None)


def _hashes(record: str) -> dict[str, str]:
    rows = csv.reader(record.splitlines())
    return {name: digest for name, digest, _ in rows if ".dist-info/" not in name}
