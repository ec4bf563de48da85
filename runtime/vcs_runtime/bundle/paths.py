"""Where bundles lie on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.errors import BundleError


def home() -> Path:
    """Where bundles are kept: `$VCS_RUNTIME_HOME`, else `vcs-runtime` in the user's cache folder."""
    if override := os.environ.get("VCS_RUNTIME_HOME"):
        return Path(override).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "vcs-runtime"


def default_bundle_path() -> Path:
    """Where `vcs-runtime fetch default` puts the embedded default."""
    return home() / "bundles" / "default"


def bundle_folder(bundle: str | os.PathLike[str]) -> Path:
    """The folder of a bundle: `bundle` itself, or that of the embedded default for "default".

    Raises BundleError if there is none, or no `bundle.json` in it.
    """
    if os.fspath(bundle) == "default":
        root = default_bundle_path()
        if not (root / MANIFEST).is_file():
            raise BundleError(
                f"the default bundle is not installed in {root}: run `vcs-runtime fetch default` "
                "(or, without a network, `vcs-runtime fetch default --from WHEEL_OR_FOLDER`)"
            )
    else:
        root = Path(bundle)
        if not root.is_dir():
            raise BundleError(f"bundle {root}: no such folder")
        if not (root / MANIFEST).is_file() or (root / MANIFEST).is_symlink():
            raise BundleError(f"bundle {root}: no {MANIFEST} in it")
    return root
