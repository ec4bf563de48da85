"""The caller's memory: reading pointers, texts, numbers and structs, and writing results.

A pointer is an integer (as C passes it), None, or what ctypes accepts for a pointer: bytes, an
array, `byref(...)`. For a NULL pointer, these functions raise ValueError with the name of the
argument.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Params
from vcs_runtime.capi.binding import (
    FIRST_SIZES,
    VCS_ABI_VERSION,
    Flag,
    Status,
    vcs_params,
    vcs_result,
)
from vcs_runtime.capi.failures import status_of
from vcs_runtime.errors import TextError
from vcs_runtime.scoring import score_table
from vcs_runtime.scoring.flags import flags_of
from vcs_runtime.text.cleaning import MAX_CHARACTERS

_MOST_BYTES: Final = 4 * MAX_CHARACTERS  # of the longest text that can be scored, in UTF-8
_MOST_CHUNKS: Final = 2**31 - 1
#: The members of a result after `struct_size`: status, n_ref, n_gen, scores, flags.
_RESULT: Final = struct.Struct(f"=3i{len(score_table.NAMES)}dQ")
_NO_SCORES: Final = (math.nan,) * len(score_table.NAMES)
_SIZE: Final = f"u{ctypes.sizeof(ctypes.c_size_t)}"
_NATIVE: Final = "<" if sys.byteorder == "little" else ">"


class Results:
    """An array of results that is filled in order.

    After an exception in a `with` block, the remaining results get its status.

    All results have the `struct_size` of the first one; otherwise ValueError is raised. Results of
    an earlier header are smaller, and only the members that they have are written.
    """

    def __init__(self, out: Any, count: int) -> None:
        self._addresses: Sequence[int] = ()
        self._filled = 0
        self._written = 0  # bytes of each result, without its `struct_size`
        if count == 0:
            return
        first = required(out, "out")
        size = _check_size(first, vcs_result, "out")
        self._addresses = range(first, first + count * size, size)
        for i, address in enumerate(self._addresses):
            other = ctypes.c_uint32.from_address(address).value
            if other != size:
                raise ValueError(f"out[{i}].struct_size is {other}, but out[0] has {size}")
        # Whole members only, and none beyond the caller's struct.
        self._written = min(size // 8 * 8, ctypes.sizeof(vcs_result)) - 4

    def put(
        self,
        status: Status,
        n_ref: int = 0,
        n_gen: int = 0,
        scores: Sequence[float] = _NO_SCORES,
        noted: Sequence[str] = (),
    ) -> None:
        """Fill in the next result; `noted` as for `flags_of`."""
        flags = 0
        if n_ref:
            named = dict(zip(score_table.NAMES, scores, strict=True))
            for name in flags_of(named, n_ref, n_gen, noted):
                flags |= Flag[f"VCS_{name.upper()}"]
        packed = _RESULT.pack(status, n_ref, n_gen, *scores, flags)
        ctypes.memmove(self._addresses[self._filled] + 4, packed, self._written)
        self._filled += 1

    def __enter__(self) -> Results:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if error:
            while self._filled < len(self._addresses):
                self.put(status_of(error))


def address_of(pointer: Any) -> int:
    """Return the address of a pointer, 0 for NULL. The object at the address must stay alive."""
    if type(pointer) is int:
        return pointer
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def required(pointer: Any, name: str) -> int:
    """Return the address of a pointer that must not be NULL."""
    address = address_of(pointer)
    if not address:
        raise ValueError(f"{name} is NULL")
    return address


def handle_at(out: Any) -> ctypes.c_void_p:
    """Return the handle at `out`, set to NULL."""
    handle = ctypes.c_void_p.from_address(required(out, "out"))
    handle.value = None
    return handle


def read_string(pointer: Any, name: str) -> str:
    """Return the NUL-terminated string at `pointer`.

    The string is usually UTF-8, but a path may contain any bytes.
    """
    return os.fsdecode(ctypes.string_at(required(pointer, name)))


def read_text(pointer: Any, length: int, name: str) -> str:
    """Return the UTF-8 text of `length` bytes at `pointer`.

    Raises TextError if it is invalid or too long.
    """
    address = required(pointer, name)
    if not 0 <= length <= _MOST_BYTES:
        raise TextError(f"{name}: the text has {length:,} bytes, more than {_MOST_BYTES:,}")
    try:
        return ctypes.string_at(address, length).decode()
    except UnicodeDecodeError as error:
        raise TextError(f"{name}: not UTF-8 (at byte {error.start}: {error.reason})") from None


def read_numbers(pointer: Any, count: int, name: str) -> list[int]:
    """Return the `count` pointers or sizes at `pointer`, which may be NULL if `count` is 0."""
    if count == 0:
        return []
    numbers: list[int] = np.asarray(_Memory(required(pointer, name), _SIZE, (count,))).tolist()
    return numbers


def read_params(pointer: Any) -> vcs_params:
    """Return the `vcs_params` at `pointer`.

    Raises ValueError for a wrong `struct_size` or `reserved`.
    """
    address = required(pointer, "params")
    _check_size(address, vcs_params, "params")
    params = vcs_params.from_address(address)
    if params.reserved:
        raise ValueError(f"params.reserved must be 0, not {params.reserved}")
    return params


def core_params(params: vcs_params) -> Params:
    """Return the parameters of the alignment in a `vcs_params`."""
    return _core_params(params.lct, params.context_cutoff, params.context_window)


@functools.lru_cache(maxsize=16)  # their validation takes longer than scoring a small matrix
def _core_params(lct: float, context_cutoff: float, context_window: float) -> Params:
    return Params(lct, context_cutoff, context_window)


def matrix_at(pointer: Any, kind: str, n_ref: int, n_gen: int) -> npt.NDArray[Any]:
    """Return the matrix `(n_ref, n_gen)` of "f4" or "f8" at `pointer`, without a copy."""
    address = required(pointer, "similarity")
    for name, size in (("n_ref", n_ref), ("n_gen", n_gen)):
        if not 1 <= size <= _MOST_CHUNKS:
            raise ValueError(f"{name} must be between 1 and {_MOST_CHUNKS}, not {size}")
    return np.asarray(_Memory(address, kind, (n_ref, n_gen)))


def write_string(text: str, buffer: Any, capacity: int) -> int:
    """Copy a text with a final NUL to `buffer`, cut to fit. Returns its full length in bytes."""
    full = text.encode(errors="replace")
    address = address_of(buffer)
    if address and capacity > 0:
        # Decoding without the last incomplete character cuts between characters.
        part = full[: capacity - 1].decode(errors="ignore").encode() + b"\0"
        ctypes.memmove(address, part, len(part))
    return len(full)


def _check_size(address: int, kind: type[ctypes.Structure], name: str) -> int:
    size: int = ctypes.c_uint32.from_address(address).value
    first = FIRST_SIZES[kind]
    if size < first:
        raise ValueError(
            f"{name}.struct_size is {size}, less than the {first} of the first {kind.__name__} of"
            f" ABI {VCS_ABI_VERSION}: set it to sizeof({kind.__name__})"
        )
    return size


class _Memory:
    """Numbers at an address, from which NumPy makes an array without a copy."""

    def __init__(self, address: int, kind: str, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, True),
            "typestr": _NATIVE + kind,
            "shape": shape,
            "version": 3,
        }
