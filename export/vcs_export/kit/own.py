"""The wheel of the vcs-runtime that runs: built from its checkout, or from where it was installed from."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from collections.abc import Callable
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from vcs_export.errors import KitError
from vcs_export.installer import installer_reason, run_pip
from vcs_runtime._version import __version__

NAME = "vcs-runtime"
_HERE = Path(__file__).resolve()


def own_wheel(folder: Path, named: Path | None, log: Callable[[str], None]) -> Path:
    """Put the wheel of this very version into a folder; raises KitError.

    Without a `named` wheel one is built from the checkout that runs; or else pip gets it from the file or the
    package index that this version was installed from, and its files must equal the installed ones.
    """
    if named is not None:
        _check_version(named)
        return Path(shutil.copy2(named, folder))
    root = _HERE.parents[3]
    settings = root / "pyproject.toml"
    if settings.is_file() and tomllib.loads(settings.read_text("utf-8"))["project"]["name"] == NAME:
        log(f"building {NAME} {__version__} from the checkout {root}")
        return _wheel(str(root), folder)
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        raise KitError(
            f"{NAME} runs from a folder, and is not installed: name its wheel with --wheel"
        ) from None
    file = _file(installed)
    origin = file or "the package index"
    log(f"getting {NAME} {__version__} from {origin}")
    wheel = _wheel(str(file or f"{NAME}=={__version__}"), folder)
    ours, theirs = _hashes(metadata_of(wheel)), _hashes(installed)
    for name, digest in ours.items():
        if theirs.get(name) != digest:
            raise KitError(
                f"{wheel.name} from {origin} is not the installed {NAME}: {name} differs: "
                "name the right wheel with --wheel"
            )
    return wheel


def metadata_of(wheel: Path) -> Distribution:
    """Return what a wheel says about itself; raises KitError if it is damaged."""
    for described in distributions(path=[str(wheel)]):
        return described
    raise KitError(f"{wheel.name}: it is damaged: it has no metadata")


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


def _file(installed: Distribution) -> Path | None:
    """Return the wheel or source archive that was installed, if pip noted one that still exists."""
    origin = urlsplit(json.loads(installed.read_text("direct_url.json") or "{}").get("url", ""))
    path = Path(url2pathname(origin.path))
    return path if origin.scheme == "file" and path.is_file() else None


def _hashes(described: Distribution) -> dict[str, str]:
    """Return the hashes of a package's files; a builder may describe it differently."""
    rows = csv.reader((described.read_text("RECORD") or "").splitlines())
    return {name: digest for name, digest, _ in rows if ".dist-info/" not in name}
