"""The cache of compiled kernels: Numba's file cache, which differs in five points.

- Numba checks only the source file of the kernel itself, so a change in a helper's file would leave
  stale machine code in the cache. Here the stamp covers every source file of the package.
- Numba ignores a folder that it cannot write to. Here a read-only folder (in a container image) is
  read.
- Numba reads any folder. Here one that other users can write to or exchange is passed over.
- Numba raises an error if no folder is writable. Here each process compiles the kernel for itself.
- Numba first declares all functions that it could compile. Here this waits until something is
  compiled, because machine code needs only Numba's allocator. It saves most of the time of a first
  score.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching, config
from numba.core.runtime.nrt import rtsys

from vcs_numba.jit.owners import is_own, make_folder


@cache
def source_stamp() -> bytes:
    """Return a digest of the package's source files, from which machine code was made."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


class _Stamped:
    """Mixin for Numba's locators: the stamp covers the package, and folders may be read-only."""

    def get_source_stamp(self) -> bytes:
        """Return the stamp that a cache file must bear to be read."""
        return source_stamp()

    def get_cache_path(self) -> str:
        """Return the folder without links, which could lead elsewhere after it has been checked."""
        return os.path.realpath(super().get_cache_path())  # type: ignore[misc,no-any-return]

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Make a locator for a function without the test whether its folder is writable."""
        return cls(py_func, py_file)  # type: ignore[call-arg]


class _Place:
    """Mixin for Numba's file cache, which declares compilable types after machine code is read."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Read the machine code for a signature; None if the folder does not hold it."""
        try:
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)  # type: ignore[attr-defined]
        except Exception:
            return super().load_overload(sig, target_context)  # type: ignore[misc]


def _place(locator_name: str, function: Callable[..., Any]) -> Any:
    """Return Numba's file cache for `function` in the folder that one of Numba's locators names."""
    # Up to Numba 0.61 the names of these classes start with an underscore.
    locator = getattr(caching, locator_name, None) or getattr(caching, f"_{locator_name}")
    stamped = type(locator_name, (_Stamped, locator), {})
    implementation = type(
        "Implementation", (caching.CompileResultCacheImpl,), {"_locator_classes": [stamped]}
    )
    return type("Place", (_Place, caching.FunctionCache), {"_impl_class": implementation})(function)


def _is_own(place: Any, source: str) -> bool:
    """Return whether only this user, root and the source's owner can write what is read.

    A cached kernel is a pickle of machine code, which whoever writes it runs in this process.
    """
    owners = []
    with contextlib.suppress(OSError):  # code may come without a file, as from a zip archive
        owners.append(os.stat(source).st_uid)
    folder = place.cache_path
    return is_own(folder, *owners, parents=True) and all(
        is_own(file, *owners) for file in _files(place)
    )


def _files(place: Any) -> list[Path]:
    """Return the cached files of a kernel."""
    return list(Path(place.cache_path).glob(f"{glob.escape(place._impl.filename_base)}*.nb?"))


class KernelCache(caching.NullCache):
    """A cache that reads from any folder with the kernel and saves to a writable one.

    A folder to which other users can write is passed over.

    The order is: the folder that NUMBA_CACHE_DIR names, `__pycache__` beside the sources, the
    user's cache.
    """

    def __init__(self, function: Callable[..., Any], missing: Callable[[], None]) -> None:
        self._missing = missing
        locators = ["InTreeCacheLocator", "UserWideCacheLocator"]
        if config.CACHE_DIR:  # type: ignore[attr-defined]
            locators.insert(0, "UserProvidedCacheLocator")
        self._places = [_place(locator, function) for locator in locators]
        self._source = function.__code__.co_filename

    @property
    def cache_path(self) -> str:
        """The first of the folders."""
        path: str = self._places[0].cache_path
        return path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Read the machine code for a signature.

        None, after a call of `missing`, if no folder holds it.
        """
        for place in self._own_places():
            # A file that is unreadable, truncated or foreign counts as missing: the kernel is
            # compiled again.
            with contextlib.suppress(Exception):
                overload = place.load_overload(sig, target_context)
                if overload is not None:
                    return overload
        self._missing()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the machine code for a signature in the first folder that can be written."""
        for place in self._own_places():
            with contextlib.suppress(OSError):
                # With some umasks Numba would let the user's group write to the folder, whose cache
                # would then not be read.
                make_folder(Path(place.cache_path), 0o755)
                place.save_overload(sig, data)
                for file in _files(place):  # the same holds for the files
                    file.chmod(0o644)
                return

    def _own_places(self) -> list[Any]:
        return [place for place in self._places if _is_own(place, self._source)]
