"""Compilation: how a plain function becomes a kernel, and when it is compiled.

Helpers are plain functions that are compiled into the kernels that call them. Kernels are what
Python calls. A kernel has one explicit signature and is never compiled for other types. Its first
call compiles it, or reads it from the cache (`jit.cache`). Kernels release the GIL. `fastmath` is
off, so every result is bit-reproducible.

Numba is imported when the first kernel is loaded, which takes longer than all other imports. Until
then signatures are descriptions, and helpers stay plain functions until a kernel is compiled.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 see _LOADING
import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}
# The functions that kernels call, with Numba's options for them.
_HELPERS: Final[dict[Callable[..., Any], dict[str, Any]]] = {}


class _Config:
    """Numba's settings: environment variables NUMBA_*, read once by Numba."""

    def __getattr__(self, name: str) -> Any:
        from numba.core import config

        return getattr(config, name)


numba_config: Final[Any] = _Config()

_LOADING: Final = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A child could load nothing if another thread was loading when its parent forked: the locks
    # here, in Numba and in LLVM would stay locked for ever. So a fork waits until nobody loads. It
    # takes locks in the reverse order of their registration: modules that Numba imports, and that
    # register theirs, come before.
    os.register_at_fork(
        before=_LOADING.acquire, after_in_parent=_LOADING.release, after_in_child=_LOADING.release
    )


_COMPILING: Final = threading.Event()


def is_compiling() -> bool:
    """Return whether a kernel is being compiled, which takes seconds."""
    return _COMPILING.is_set()


@cache
def _announce(what: str = "first run: compiling takes about half a minute") -> None:
    """Log, once in a process, why nothing happens for a while."""
    logging.getLogger("vcs_numba").warning("vcs-runtime: %s", what)


class Type(NamedTuple):
    """The type of an argument: a number (ndim 0), or a C-contiguous array of numbers."""

    name: str
    ndim: int = 0
    readonly: bool = False

    def resolve(self) -> Any:
        """Return Numba's type."""
        from numba.core import types

        number = getattr(types, self.name)
        if self.ndim == 0:
            return number
        return types.Array(number, self.ndim, "C", readonly=self.readonly)


#: A parameter of a kernel: one argument, or a tuple of arguments that belong together.
Parameter = Type | tuple[Type, ...]


def _resolve(parameter: Parameter) -> Any:
    """Return Numba's type of a parameter."""
    if isinstance(parameter, Type):
        return parameter.resolve()
    from numba.core import types

    members = [member.resolve() for member in parameter]
    return types.Tuple(members)  # type: ignore[no-untyped-call]


#: The types of numbers in signatures.
types: Final = SimpleNamespace(
    **{name: Type(name) for name in ("boolean", "int32", "int64", "float32", "float64")}
)
#: The element types a similarity matrix may have, by NumPy's character code.
SIMILARITY_TYPES: Final[dict[str, Type]] = {"f": types.float32, "d": types.float64}


def array(element: Type, ndim: int, *, readonly: bool = False) -> Type:
    """Return the signature type of a C-contiguous array."""
    return Type(element.name, ndim, readonly)


def helper(function: Function) -> Function:
    """Mark a function that kernels call: it is compiled as part of each of them."""
    _HELPERS[function] = {"forceinline": True}
    return function


def rare(function: Function) -> Function:
    """Mark a helper that few calls need: it is not inlined, which keeps the hot code small."""
    _HELPERS[function] = {}
    return function


def _make_helpers() -> None:
    """Replace plain helpers by functions of Numba wherever kernels and helpers use them."""
    _COMPILING.set()
    import numba

    functions: list[Any] = [*_HELPERS, *(kernel._function for kernel in KERNELS)]
    places = {id(function.__globals__): function.__globals__ for function in functions}
    compiled = {
        plain: numba.njit(**_OPTIONS, **options)(plain) for plain, options in _HELPERS.items()
    }
    for place in places.values():
        for name, value in list(place.items()):
            if isinstance(value, FunctionType) and value in compiled:
                place[name] = compiled[value]


def _make_helpers_announced() -> None:
    _announce()
    _make_helpers()


class Kernel:
    """A compiled entry point with one signature; `kernel.call(...)` calls it.

    The first call loads the compiled function, which then takes the place of `call`. Under
    NUMBA_DISABLE_JIT=1 the plain function does. So a call costs one attribute look-up; a `__call__`
    method would add about 0.2 microseconds.
    """

    __slots__ = ("_function", "_signature", "call")

    def __init__(self, function: Callable[..., Any], *signature: Parameter) -> None:
        self._function = function
        self._signature = signature
        self.call: Callable[..., Any] = self._load_and_call
        KERNELS.append(self)

    @property
    def is_loaded(self) -> bool:
        """Whether the function has been loaded."""
        return self.call != self._load_and_call

    def load(self, missing: Callable[[], None] = _make_helpers_announced) -> Callable[..., Any]:
        """Compile the function or read it from the cache, and return the new `call`.

        Thread-safe. `missing` is called before anything is compiled; its exception prevents that.
        """
        with _LOADING:
            try:
                if not self.is_loaded:
                    self.call = (
                        self._function if numba_config.DISABLE_JIT else self._compiled(missing)
                    )
            finally:
                _COMPILING.clear()
            return self.call

    def _load_and_call(self, *arguments: Any) -> Any:
        return self.load()(*arguments)

    def _compiled(self, missing: Callable[[], None]) -> Callable[..., Any]:
        import numba

        # Numba imports it at the first call, when no fork waits for it (see _LOADING).
        import numpy.ma  # noqa: F401

        dispatcher = numba.njit(**_OPTIONS)(self._function)
        try:
            # The cache uses private classes of Numba: a release that moves them must cost time, not
            # results.
            from vcs_numba.jit.cache import KernelCache

            dispatcher._cache = KernelCache(self._function, missing)
        except Exception as error:
            missing()
            warnings.warn(
                f"vcs_numba cannot use its cache: {error}",
                RuntimeWarning,
                stacklevel=5,
            )
        dispatcher.compile(tuple(map(_resolve, self._signature)))
        dispatcher.disable_compile()
        return dispatcher  # type: ignore[no-any-return]


KERNELS: Final[list[Kernel]] = []


def by_element(
    function: Callable[..., Any], signature: Callable[[Type], tuple[Parameter, ...]]
) -> dict[str, Kernel]:
    """Make one kernel for each element type of a similarity matrix, by NumPy's character code."""
    return {
        code: Kernel(function, *signature(element)) for code, element in SIMILARITY_TYPES.items()
    }


class _NotCachedError(Exception):
    """The cache does not hold a kernel that is loaded ahead."""


def _refuse() -> None:
    _announce()  # the score that follows compiles
    raise _NotCachedError


def _is_first_run() -> bool:
    """Return whether no kernel can be cached, before Numba is imported, which takes a second."""
    package = Path(__file__).parents[1]
    folders = [package, Path(os.environ.get("NUMBA_CACHE_DIR") or package)]
    # Kernels of a package that cannot be written are in the user's cache, which only Numba knows.
    is_writable = os.access(package, os.W_OK)
    return is_writable and not any(next(folder.rglob("*.nbi"), None) for folder in folders)


def load_in_background(kernels: Sequence[Kernel]) -> None:
    """Import Numba and read kernels from the cache in a thread, without compiling others."""
    if _is_first_run() and not os.environ.get("NUMBA_DISABLE_JIT"):
        _announce()

    def load() -> None:
        # The first call meets the same error again, and raises it.
        with contextlib.suppress(Exception):
            for kernel in kernels:
                kernel.load(_refuse)

    if not all(kernel.is_loaded for kernel in kernels):
        # No thread can start: the interpreter is shutting down.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=load, name="vcs_numba-loading").start()


def warm_up() -> None:
    """Compile every kernel that the cache lacks and save it, in up to a minute.

    Afterwards a process on this machine needs a fraction of a second for its first score. The cache
    is the first writable folder of these three: the folder in NUMBA_CACHE_DIR, `__pycache__` next
    to these sources, the user's cache folder. Its files are valid for one type of CPU, one version
    of Python and of Numba, and these sources.
    """

    def missing() -> None:
        _announce("compiling for this machine, once, takes up to a minute")
        _make_helpers()

    for kernel in KERNELS:
        kernel.load(missing)
