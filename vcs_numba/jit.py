"""Compilation: how a plain function becomes a kernel, when it is compiled, and where the result is kept.

Helpers are plain functions, compiled into the kernels that call them. Kernels are what Python calls: each has
explicit signatures, is compiled (or read from the cache) on its first call and never for any other type, and
releases the GIL. No `fastmath`: every result is bit-reproducible.

Numba's own cache has three properties that hurt a package like this one, so the cache here is a small
variant:

- it checks only the source file of the kernel itself: a change in a helper's file would leave stale machine
  code behind. Here the stamp covers every source file of the package;
- it ignores a folder that it cannot write to. Here a read-only folder (a container image) is read all the
same; - it raises at import if no folder is writable at all. Here the kernel is compiled anew in each
process instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from numba.core import caching, config
from numba.core import types as types

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}
#: Numba's settings: environment variables NUMBA_*, read once by Numba.
numba_config: Final[Any] = config

_LOADING: Final = threading.RLock()

#: The element types a similarity matrix may have, by numpy's character code.
SIMILARITY_TYPES: Final = {"f": types.float32, "d": types.float64}


def array(element: Any, ndim: int, *, readonly: bool = False) -> Any:
    """The signature type of a C-contiguous array."""
    return types.Array(element, ndim, "C", readonly=readonly)


def helper(function: Function) -> Function:
    """A function for kernels to call; compiled as part of them."""
    compiled: Function = numba.njit(**_OPTIONS, forceinline=True)(function)
    return compiled


class Kernel:
    """A compiled entry point with one signature.

    `call` is None until `load()` has been called, then the compiled function: `(k.call or k.load())(...)` costs
    an attribute look-up. Under NUMBA_DISABLE_JIT=1 it is the plain function.
    """

    __slots__ = ("_function", "_signature", "call")

    def __init__(self, function: Callable[..., Any], *signature: Any) -> None:
        self._function = function
        self._signature = signature
        self.call: Callable[..., Any] | None = None
        KERNELS.append(self)

    def load(self) -> Callable[..., Any]:
        """Compiles the function or reads it from the cache; thread-safe."""
        with _LOADING:
            if self.call is None:
                self.call = self._function if numba_config.DISABLE_JIT else self._compiled()
            return self.call

    def _compiled(self) -> Callable[..., Any]:
        dispatcher = numba.njit(**_OPTIONS)(self._function)
        try:
            dispatcher._cache = _Cache(self._function)
        except (
            Exception
        ) as error:  # private classes of Numba: a release that moved them costs time, not results
            warnings.warn(f"vcs_numba compiles without a cache: {error}", RuntimeWarning, stacklevel=4)
        dispatcher.compile(self._signature)
        dispatcher.disable_compile()
        return dispatcher  # type: ignore[no-any-return]


KERNELS: Final[list[Kernel]] = []


def by_element(
    function: Callable[..., Any], signature: Callable[[Any], tuple[Any, ...]]
) -> dict[str, Kernel]:
    """One kernel for each element type of a similarity matrix, by numpy's character code."""
    return {code: Kernel(function, *signature(element)) for code, element in SIMILARITY_TYPES.items()}


def warm_up() -> None:
    """Compiles every kernel that the cache does not hold yet, and saves it there: some tens of seconds once.

    Afterwards a process on this machine needs a fraction of a second for its first score. The cache is the folder
    that NUMBA_CACHE_DIR names, else `__pycache__` beside these sources, else the user's cache folder: the first
    of them that can be written. It depends on the CPU's kind, on Python's and Numba's versions and on these
    sources.
    """
    for kernel in KERNELS:
        kernel.load()


@cache
def source_stamp() -> bytes:
    """A digest of every source file of the package: what the cached machine code was made from."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


class _Stamped:
    """Mixin for Numba's locators: stamped with the whole package, and no demand that the folder be
    writable.
    """

    def get_source_stamp(self) -> bytes:
        return source_stamp()

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        if cls.__mro__[2] is caching.UserProvidedCacheLocator and not numba_config.CACHE_DIR:
            return None
        return cls(py_func, py_file)  # type: ignore[call-arg]


class _ProvidedLocator(_Stamped, caching.UserProvidedCacheLocator):
    """The folder that NUMBA_CACHE_DIR names."""


class _InTreeLocator(_Stamped, caching.InTreeCacheLocator):
    """`__pycache__` beside the sources."""


class _UserWideLocator(_Stamped, caching.UserWideCacheLocator):
    """The user's cache folder."""


class _Cache(caching.NullCache):
    """Reads from the first folder that holds the kernel, saves to the first that can be written."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._places = []
        for locator in (_ProvidedLocator, _InTreeLocator, _UserWideLocator):
            implementation = type(
                "_Implementation", (caching.CompileResultCacheImpl,), {"_locator_classes": [locator]}
            )
            place = type("_Place", (caching.FunctionCache,), {"_impl_class": implementation})
            # RuntimeError: this locator has no folder to offer.
            with contextlib.suppress(RuntimeError):
                self._places.append(place(function))

    @property
    def cache_path(self) -> str | None:
        return self._places[0].cache_path if self._places else None

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
