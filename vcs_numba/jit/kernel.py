"""Compilation: how a plain function becomes a kernel, and when it is compiled.

Helpers are plain functions that are compiled into the kernels that call them. Kernels are what Python calls.
A kernel has one explicit signature and is never compiled for other types. Its first call compiles it, or
reads it from the cache (`jit.cache`). Kernels release the GIL. `fastmath` is off, so every result
is bit-reproducible.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
from numba.core import config
from numba.core import types as types

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}
#: Numba's settings: environment variables NUMBA_*, read once by Numba.
numba_config: Final[Any] = config

_LOADING: Final = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A child could load nothing if another thread was loading when its parent forked: the locks here, in
    # Numba and in LLVM would stay locked for ever. So a fork waits until nobody loads.
    os.register_at_fork(
        before=_LOADING.acquire, after_in_parent=_LOADING.release, after_in_child=_LOADING.release
    )

#: The element types a similarity matrix may have, by NumPy's character code.
SIMILARITY_TYPES: Final = {"f": types.float32, "d": types.float64}


def array(element: Any, ndim: int, *, readonly: bool = False) -> Any:
    """Return the signature type of a C-contiguous array."""
    return types.Array(element, ndim, "C", readonly=readonly)


def helper(function: Function) -> Function:
    """Mark a function that kernels call: it is compiled as part of each of them."""
    compiled: Function = numba.njit(**_OPTIONS, forceinline=True)(function)
    return compiled


def rare(function: Function) -> Function:
    """Mark a helper that few calls need: it is not inlined, which keeps the hot code small."""
    compiled: Function = numba.njit(**_OPTIONS)(function)
    return compiled


class Kernel:
    """A compiled entry point with one signature; `kernel.call(...)` calls it.

    The first call loads the compiled function, which then takes the place of `call`. Under
    NUMBA_DISABLE_JIT=1 the plain function does. So a call costs one attribute look-up; a `__call__` method
    would add about 0.2 microseconds.
    """

    __slots__ = ("_function", "_signature", "call")

    def __init__(self, function: Callable[..., Any], *signature: Any) -> None:
        self._function = function
        self._signature = signature
        self.call: Callable[..., Any] = self._load_and_call
        KERNELS.append(self)

    def load(self) -> Callable[..., Any]:
        """Compile the function or read it from the cache; return what `call` is from now on. Thread-safe."""
        with _LOADING:
            if self.call == self._load_and_call:
                self.call = self._function if numba_config.DISABLE_JIT else self._compiled()
            return self.call

    def _load_and_call(self, *arguments: Any) -> Any:
        return self.load()(*arguments)

    def _compiled(self) -> Callable[..., Any]:
        dispatcher = numba.njit(**_OPTIONS)(self._function)
        try:
            # The cache uses private classes of Numba: a release that moves them must cost time, not results.
            from vcs_numba.jit.cache import KernelCache

            dispatcher._cache = KernelCache(self._function)
        except Exception as error:
            warnings.warn(f"vcs_numba compiles without a cache: {error}", RuntimeWarning, stacklevel=5)
        dispatcher.compile(self._signature)
        dispatcher.disable_compile()
        return dispatcher  # type: ignore[no-any-return]


KERNELS: Final[list[Kernel]] = []


def by_element(
    function: Callable[..., Any], signature: Callable[[Any], tuple[Any, ...]]
) -> dict[str, Kernel]:
    """Make one kernel for each element type of a similarity matrix, by NumPy's character code."""
    return {code: Kernel(function, *signature(element)) for code, element in SIMILARITY_TYPES.items()}


def warm_up() -> None:
    """Compile every kernel that the cache does not hold yet and save it there, which takes up to a minute.

    Afterwards a process on this machine needs a fraction of a second for its first score. The cache is the
    first folder of these that can be written: the one that NUMBA_CACHE_DIR names, `__pycache__` beside these
    sources, the user's cache folder. Its files are valid for one type of CPU, one version of Python and of
    Numba, and these sources.
    """
    for kernel in KERNELS:
        kernel.load()
