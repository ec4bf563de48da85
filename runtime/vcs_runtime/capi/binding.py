"""The ctypes types of `vcs_runtime.h`, and `load`, which declares a built library's functions."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum, IntFlag
from typing import Any, Final

from vcs_runtime.scoring import score_table

VCS_ABI_VERSION: Final = 1


class Status(IntEnum):
    """`vcs_status`. The values never change."""

    VCS_OK = 0
    VCS_INVALID_ARGUMENT = 1
    VCS_NOT_FOUND = 2
    VCS_BAD_BUNDLE = 3
    VCS_BAD_TEXT = 4
    VCS_DEVICE = 5
    VCS_OUT_OF_MEMORY = 6
    VCS_INTERNAL = 7


class Flag(IntFlag):
    """`vcs_flag`, the bits of `vcs_result.flags`. The values never change."""

    VCS_ORDER_UNDEFINED = 1
    VCS_SINGLE_CHUNKS = 2
    VCS_ZERO_CONTENT = 4
    VCS_ZERO_ORDER = 8
    VCS_BELOW_GATE = 16
    VCS_NOT_SPLIT = 32


class vcs_params(ctypes.Structure):
    """How pairs are scored; `vcs_params_default` fills in the defaults."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("chunk_size", c_int32),
        ("short_form", c_int32),
        ("reserved", c_int32),
        ("lct", c_double),
        ("context_cutoff", c_double),
        ("context_window", c_double),
    )


class vcs_result(ctypes.Structure):
    """The scores of a pair, in the order of `score_table.NAMES`, and its flags.

    Set `struct_size` first.
    """

    _fields_ = (
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("n_ref", c_int32),
        ("n_gen", c_int32),
        *((name, c_double) for name in score_table.NAMES),
        ("flags", c_uint64),
    )


#: The size of each struct in the first header of this ABI, so that programs compiled with that
#: header still work.
FIRST_SIZES: Final[dict[type[ctypes.Structure], int]] = {vcs_params: 40, vcs_result: 136}

#: `vcs_log_fn`: level, message, user. The caller keeps a reference while the function is set.
vcs_log_fn = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)

_TEXTS, _LENGTHS = POINTER(c_char_p), POINTER(c_size_t)
_PARAMS, _RESULT, _HANDLE = POINTER(vcs_params), POINTER(vcs_result), POINTER(c_void_p)

#: The functions of the header: type of the return value, types of the arguments.
PROTOTYPES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "vcs_abi_version": (c_uint32, ()),
    "vcs_version": (c_char_p, ()),
    "vcs_params_default": (None, (_PARAMS,)),
    "vcs_model_open": (c_int, (c_char_p, c_char_p, _HANDLE)),
    "vcs_model_close": (None, (c_void_p,)),
    "vcs_scorer_create": (c_int, (c_void_p, _PARAMS, _HANDLE)),
    "vcs_scorer_destroy": (None, (c_void_p,)),
    "vcs_score": (c_int, (c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, _RESULT)),
    "vcs_score_batch": (c_int, (c_void_p, _TEXTS, _LENGTHS, _TEXTS, _LENGTHS, c_size_t, _RESULT)),
    "vcs_align_f32": (c_int, (POINTER(c_float), c_size_t, c_size_t, c_double, _PARAMS, _RESULT)),
    "vcs_align_f64": (c_int, (POINTER(c_double), c_size_t, c_size_t, c_double, _PARAMS, _RESULT)),
    "vcs_last_error": (c_size_t, (c_char_p, c_size_t)),
    "vcs_signature": (c_size_t, (c_void_p, c_char_p, c_size_t)),
    "vcs_set_log": (None, (vcs_log_fn, c_void_p)),
}


def load(library: str | os.PathLike[str]) -> ctypes.CDLL:
    """Open a built `libvcs_runtime.so` with all its functions declared. Raises OSError.

    In a Python process the library uses the interpreter and the packages of this process.
    """
    opened = ctypes.CDLL(os.fspath(library))
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(opened, name)
        function.restype = result
        function.argtypes = arguments
    return opened
