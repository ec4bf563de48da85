"""The Python side of the C library, which calls `vcs_runtime.capi` through cffi functions."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from vcs_runtime.capi import calls
from vcs_runtime.capi.binding import PROTOTYPES, Status
from vcs_runtime.capi.failures import failed

_VERSION: Final = ctypes.create_string_buffer(calls.vcs_version())


def connect(ffi: Any) -> None:
    """Connect each `python_*` function of `library.c` to the matching Python function.

    `ffi` is the FFI object of the library.
    """

    def unexpected(kind: object, error: BaseException, where: object) -> None:
        failed(error)  # for example out of memory while another error was reported

    functions = {name: getattr(calls, name) for name in PROTOTYPES if name != "vcs_abi_version"}
    functions["vcs_version"] = lambda: ctypes.addressof(_VERSION)
    for name, function in functions.items():
        result, _ = PROTOTYPES[name]
        python_name = f"python_{name.removeprefix('vcs_')}"
        define = ffi.def_extern(python_name, error=_failure_of(result), onerror=unexpected)
        define(function)


def _failure_of(result: Any) -> int | None:
    """Return the value that a function with this type of result returns after a failure."""
    if result is None:
        return None
    return Status.VCS_INTERNAL if result is ctypes.c_int else 0
