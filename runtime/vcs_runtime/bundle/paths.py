"""Folders of bundles on this machine."""

from __future__ import annotations

import errno
import os
import re
import sys
import tarfile
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

import platformdirs

from vcs_numba.jit.owners import is_own
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.errors import BundleError
from vcs_runtime.util.presence import is_folder, is_regular_file, is_there

FAST = "fast"
"""Name of the bundle with static word vectors."""
INT8 = "int8"
"""Name of the bundle with the default's linear layers in int8."""
FETCHED = ("default", FAST, INT8)
"""Names of the bundles that `vcs-runtime fetch` builds."""
DEFAULT_EMBEDDER = "all-minilm-l6-v2"
"""Name of the embedder of the bundle "default"."""
INT8_EMBEDDER = f"{DEFAULT_EMBEDDER}-{INT8}"
"""Name of the embedder of the bundle "int8"."""
# What is wrong with an empty path.
EMPTY = "the path must not be empty: is a variable not set?"
_GIVE = ": give a bundle's folder, default, fast or int8"


def home() -> Path:
    """Return the folder for bundles.

    The folder is `$VCS_RUNTIME_HOME`, or `vcs-runtime` in the user's cache folder.

    Raises BundleError for a user without a home folder, as in some containers.
    """
    try:
        override = os.environ.get("VCS_RUNTIME_HOME")
        if override:
            return Path(override).expanduser()
        folder = platformdirs.user_cache_path("vcs-runtime", appauthor=False, opinion=False)
    except RuntimeError:
        folder = Path("~")
    if str(folder).startswith("~"):  # platformdirs returns this without a home folder
        raise BundleError("this user has no home folder: set VCS_RUNTIME_HOME to a folder of yours")
    return folder


def own_folder(*names: str) -> Path:
    """Return a folder below `home()` to which only this user can write; it need not exist.

    Raises BundleError without a home folder, and PermissionError if other users can write to it.
    """
    folder = home().joinpath(*names)
    if not (is_own(home()) and is_own(folder)):
        raise PermissionError(
            errno.EPERM, "other users can write to this folder: type chmod go-w on it", str(folder)
        )
    return folder


def vector_store() -> Path | None:
    """Return the folder in which commands store vectors.

    The folder is `$VCS_RUNTIME_CACHE`, or `vectors` in `home()`. The result is None without a home
    folder, or if the variable is `none` or empty.
    """
    override = os.environ.get("VCS_RUNTIME_CACHE")
    if override in ("", "none"):
        return None
    if override is not None:
        return Path(override).expanduser().absolute()
    with suppress(BundleError):
        return home().absolute() / "vectors"
    return None


def default_bundle_path() -> Path:
    """Return the folder of the bundle "default", which `vcs-runtime fetch default` fills.

    The folder is below `$VCS_RUNTIME_HOME` if this variable is set. Otherwise it is in the Python
    environment if a kit has installed it there (`share/vcs-runtime`), and else in `home()`.
    """
    place = Path("bundles", "default")
    installed = Path(sys.prefix, "share", "vcs-runtime", place)
    if not os.environ.get("VCS_RUNTIME_HOME") and is_regular_file(installed / MANIFEST):
        return installed
    return home() / place


def fetched_bundle_path(name: str) -> Path:
    """Return the folder of a bundle of `FETCHED`: all are next to the default bundle."""
    return default_bundle_path().parent / name


def how_to_download(name: str, command: str | None = None) -> str:
    """Return how to get a model if `name` is its published name instead of a folder, else "".

    The advice names the `export` subcommand `command`.
    """
    if name.lower() == "nv-embed-v2":
        name = "nvidia/NV-Embed-v2"
    publisher, slash, model = name.rpartition("/")
    if not slash or not re.fullmatch(r"[A-Za-z0-9][\w-]*", publisher) or Path(publisher).exists():
        return ""
    kind = command or "encoder` or `decoder"
    family = re.match(r"nv-embed-v2$|sat(?=-)", model.lower())
    if family and not command:
        kind = family[0]
    return (
        f". Models are not downloaded: `hf download {publisher}/{model} --local-dir {model}`, "
        f"then `vcs-runtime export {kind} --from {model} -o BUNDLE`"
    )


def _why_no_folder(root: Path, name: str) -> str:
    """Return why a bundle's folder is not there, and what was probably meant."""
    if is_there(root):
        if root.is_file() and tarfile.is_tarfile(root):
            return (
                f"it is packed: `vcs-runtime bundle unpack {root} -o FOLDER` checks and unpacks it"
            )
        return "a bundle is a folder, but this is a file"
    similar = get_close_matches(name.lower(), FETCHED, 1)
    if name.split("/")[-1].lower() == DEFAULT_EMBEDDER:
        similar = ["default"]
    if similar:
        return f"no such folder. Did you mean {similar[0]}?"
    return f"no such folder{how_to_download(name) or _GIVE}"


def bundle_folder(bundle: str | os.PathLike[str]) -> Path:
    """Return the folder of a bundle, which may be named "default", "fast" or "int8".

    Raises BundleError if the folder has no `bundle.json`.
    """
    name = os.fspath(bundle)
    if not name:
        raise BundleError(f"bundle: {EMPTY}")
    root = fetched_bundle_path(name) if name in FETCHED else Path(bundle)
    try:
        whole = is_regular_file(root / MANIFEST)
        if name in FETCHED and not whole:
            raise BundleError(
                f"the {name} bundle is not installed in {root}: run `vcs-runtime fetch {name}` (or,"
                f" without a network, `vcs-runtime fetch {name} --from WHEEL_OR_FOLDER`)"
            )
        if not whole and not is_folder(root):
            raise BundleError(f"bundle {root}: {_why_no_folder(root, name)}")
        if not whole or (root / MANIFEST).is_symlink():
            raise BundleError(f"bundle {root}: no {MANIFEST} in it{_GIVE}")
    except OSError as error:  # such as a folder that this user may not enter
        raise BundleError(f"bundle {root}: {error.strerror}") from None
    return root
