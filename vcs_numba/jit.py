"""Compilation: how a plain function becomes a kernel, and when it is compiled.

Helpers are plain functions, compiled into the kernels that call them. Kernels are what Python calls: each has
an explicit signature, is compiled (or read from the cache, see `vcs_numba.cache`) on its first call and never
for any other type, and releases the GIL. No `fastmath`: every result is bit-reproducible.
"""

from __future__ import annotations

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

#: The element types a similarity matrix may have, by numpy's character code.
SIMILARITY_TYPES: Final = {"f": types.float32, "d": types.float64}


def array(element: Any, ndim: int, *, readonly: bool = False) -> Any:
    """The signature type of a C-contiguous array."""
    return types.Array(element, ndim, "C", readonly=readonly)


def helper(function: Function) -> Function:
    """A function for kernels to call; compiled as part of them."""
    compiled: Function = numba.njit(**_OPTIONS, forceinline=True)(function)
    return compiled


def rare(function: Function) -> Function:
    """Like `helper`, for what few calls need: stays a call of its own and so out of the hot code's way."""
    compiled: Function = numba.njit(**_OPTIONS)(function)
    return compiled


class Kernel:
    """A compiled entry point with one signature.

    `call` is None until `load()` has been called, then the compiled function: `(k.call or k.load())(...)`
    costs an attribute look-up. Under NUMBA_DISABLE_JIT=1 it is the plain function.
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
            # It rests on private classes of Numba: a release that moves them must cost time, not results.
            from vcs_numba.cache import KernelCache

            dispatcher._cache = KernelCache(self._function)
        except Exception as error:
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

    Afterwards a process on this machine needs a fraction of a second for its first score. The cache is the
    folder that NUMBA_CACHE_DIR names, else `__pycache__` beside these sources, else the user's cache folder:
    the first of them that can be written. What is in it holds for one kind of CPU, one version of Python and
    of Numba, and these sources.
    """
    for kernel in KERNELS:
        kernel.load()
