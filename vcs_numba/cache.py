"""Where compiled kernels are kept: Numba's file cache, with three of its properties changed.

- Numba checks only the source file of the kernel itself: a change in a helper's file would leave stale
  machine code behind. Here the stamp covers every source file of the package.
- Numba ignores a folder that it cannot write to. Here a read-only folder (a container image) is read all the
  same.
- Numba raises if no folder is writable at all. Here the kernel is compiled anew in each process instead.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching

from vcs_numba.jit import numba_config


@cache
def source_stamp() -> bytes:
    """A digest of every source file of the package: what the cached machine code was made from."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


class _Stamped:
    """Mixin for Numba's locators: stamped with the whole package; the folder need not be writable."""

    def get_source_stamp(self) -> bytes:
        return source_stamp()

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        return cls(py_func, py_file)  # type: ignore[call-arg]


def _place(locator_name: str, function: Callable[..., Any]) -> Any:
    """Numba's file cache for `function` in the folder that one of its locators names."""
    # Up to Numba 0.61 these classes bear an underscore.
    locator = getattr(caching, locator_name, None) or getattr(caching, f"_{locator_name}")
    stamped = type(locator_name, (_Stamped, locator), {})
    implementation = type(
        "Implementation", (caching.CompileResultCacheImpl,), {"_locator_classes": [stamped]}
    )
    return type("Place", (caching.FunctionCache,), {"_impl_class": implementation})(function)


class KernelCache(caching.NullCache):
    """Reads from the first folder that holds the kernel, saves to the first that can be written.

    In this order: the folder that NUMBA_CACHE_DIR names, `__pycache__` beside the sources, the user's cache.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        locators = ["InTreeCacheLocator", "UserWideCacheLocator"]
        if numba_config.CACHE_DIR:
            locators.insert(0, "UserProvidedCacheLocator")
        self._places = [_place(locator, function) for locator in locators]

    @property
    def cache_path(self) -> str:
        path: str = self._places[0].cache_path
        return path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        for place in self._places:
            # Whatever is unreadable, truncated or foreign is compiled anew.
            with contextlib.suppress(Exception):
                found = place.load_overload(sig, target_context)
                if found is not None:
                    return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        for place in self._places:
            with contextlib.suppress(OSError):
                place.save_overload(sig, data)
                return
