"""The functions of `vcs_runtime.h` in Python: what the library calls, and what a Python program may call.

A pointer is a number (as C hands it over), None, or what ctypes takes for a pointer: bytes, an array,
`byref(...)`. Every function returns what its namesake in C returns, and raises nothing.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Params, Scores, score_similarity
from vcs_runtime._version import __version__
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.capi import log
from vcs_runtime.capi.binding import VCS_ABI_VERSION, Status, vcs_log_fn, vcs_params, vcs_result
from vcs_runtime.capi.handles import Handles, Model, ScorerState
from vcs_runtime.errors import BundleError, DeviceError, TextError
from vcs_runtime.inference.device import choose_device
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.text.cleaning import MAX_CHARACTERS

_MOST_BYTES: Final = 4 * MAX_CHARACTERS  # no text that can be scored has more in UTF-8
_MOST_CHUNKS: Final = 2**31 - 1
#: A result behind its `struct_size`: status, n_ref, n_gen, scores.
_RESULT: Final = struct.Struct(f"=3i{len(Scores._fields)}d")
_NO_SCORES: Final = (math.nan,) * len(Scores._fields)
_SIZE: Final = f"u{ctypes.sizeof(ctypes.c_size_t)}"
_NATIVE: Final = "<" if sys.byteorder == "little" else ">"

_handles: Final = Handles()
_last: Final = threading.local()


class _Refused(Exception):
    """What has a status that its exception alone does not tell."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


_STATUSES: Final[tuple[tuple[type[BaseException], Status], ...]] = (
    (TextError, Status.VCS_BAD_TEXT),  # before ValueError, which it is
    (ValueError, Status.VCS_INVALID_ARGUMENT),
    (BundleError, Status.VCS_BAD_BUNDLE),
    (OSError, Status.VCS_BAD_BUNDLE),  # scoring reads no other files
    (DeviceError, Status.VCS_DEVICE),
    (MemoryError, Status.VCS_OUT_OF_MEMORY),
)


def _status_of(error: BaseException | None) -> Status:
    if isinstance(error, _Refused):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.VCS_INTERNAL)


def failed(error: BaseException) -> Status:
    """Remember an error as this thread's last; its status. Defects are logged with their traceback."""
    status = _status_of(error)
    _last.message = str(error) or type(error).__name__
    if status == Status.VCS_INTERNAL:
        _last.message = f"{type(error).__name__}: {error}"
        log.log(log.ERROR, "".join(traceback.format_exception(error)))
    return status


def _returns_status(function: Callable[..., None]) -> Callable[..., int]:
    @functools.wraps(function)
    def call(*arguments: Any) -> int:
        try:
            function(*arguments)
        except BaseException as error:  # an exception must not cross into C, whatever it is
            return int(failed(error))
        return 0

    return call


def vcs_abi_version() -> int:
    """The version of the ABI: that of the header."""
    return VCS_ABI_VERSION


def vcs_version() -> bytes:
    """The version of vcs-runtime."""
    return __version__.encode()


def vcs_params_default(params: Any) -> None:
    """Write the default parameters to a `vcs_params`."""
    if not (address := _address(params)):
        failed(ValueError("params is NULL"))
        return
    options = Options()
    found = vcs_params.from_address(address)
    found.struct_size, found.chunk_size = ctypes.sizeof(vcs_params), options.chunk_size
    found.short_form, found.reserved = int(options.short), 0
    found.lct, found.context_cutoff = options.params.lct, options.params.context_cutoff
    found.context_window = options.params.context_window


@_returns_status
def vcs_model_open(bundle: Any, device: Any, out: Any) -> None:
    """Open a bundle on a device; its handle is written to `out`, NULL on error."""
    target = _handle_at(out)
    target.value = None
    name, wanted = _string(bundle, "bundle"), _string(device, "device")
    try:
        folder = bundle_folder(name)
    except BundleError as error:
        raise _Refused(Status.VCS_NOT_FOUND, str(error)) from None
    try:
        choose_device(wanted)
    except ValueError as error:
        raise _Refused(Status.VCS_DEVICE, str(error)) from None
    scorer = Scorer.open(folder, wanted)
    found = scorer.embedder.device
    log.log(log.INFORMATION, f"{folder} is open on {found.engine} ({found.reason})")
    target.value = _handles.keep(Model(scorer))


def vcs_model_close(model: Any) -> None:
    """Close a model; calls that are running end first. None is fine."""
    _given_back(model, Model, "model", Model.close)


@_returns_status
def vcs_scorer_create(model: Any, params: Any, out: Any) -> None:
    """Make a scorer on a model; its handle is written to `out`, NULL on error."""
    target = _handle_at(out)
    target.value = None
    found = _handles.get(_address(model), Model, "model")
    given = _params_at(params)
    if given.short_form not in (0, 1):
        raise ValueError(f"params.short_form must be 0 or 1, not {given.short_form}")
    options = Options(given.chunk_size, _core_params(given), short=bool(given.short_form))
    target.value = _handles.keep(ScorerState(found, options))


def vcs_scorer_destroy(scorer: Any) -> None:
    """Give a scorer back. None is fine."""
    _given_back(scorer, ScorerState, "scorer", lambda _: None)


@_returns_status
def vcs_score(
    scorer: Any, reference: Any, reference_len: int, generated: Any, generated_len: int, out: Any
) -> None:
    """Score one pair into a `vcs_result`."""
    with _Results(out, 1) as results:
        [error] = _score(scorer, [(reference, reference_len, generated, generated_len)], results)
        if error:
            raise error


@_returns_status
def vcs_score_batch(
    scorer: Any,
    references: Any,
    reference_lens: Any,
    generated: Any,
    generated_lens: Any,
    n: int,
    out: Any,
) -> None:
    """Score `n` pairs into an array of `vcs_result`; each has its own status."""
    arrays = {
        "references": references,
        "reference_lens": reference_lens,
        "generated": generated,
        "generated_lens": generated_lens,
    }
    with _Results(out, n) as results:
        columns = [_numbers(array, n, name) for name, array in arrays.items()]
        errors = _score(scorer, list(zip(*columns, strict=True)), results)
    bad = [(i, error) for i, error in enumerate(errors) if error]
    if bad:
        i, first = bad[0]
        others = f" (and {len(bad) - 1} more of {n})" if len(bad) > 1 else ""
        raise _Refused(_status_of(first), f"pairs[{i}]: {first}{others}")


@_returns_status
def vcs_align_f32(similarity: Any, n_ref: int, n_gen: int, gas: float, params: Any, out: Any) -> None:
    """Score a float32 similarity matrix `(n_ref, n_gen)`, row by row, into a `vcs_result`."""
    _align("f4", similarity, n_ref, n_gen, gas, params, out)


@_returns_status
def vcs_align_f64(similarity: Any, n_ref: int, n_gen: int, gas: float, params: Any, out: Any) -> None:
    """The same of a float64 matrix."""
    _align("f8", similarity, n_ref, n_gen, gas, params, out)


def vcs_last_error(buffer: Any, capacity: int) -> int:
    """Copy the message of this thread's last failure; returns its full length in bytes."""
    return _copy_out(getattr(_last, "message", ""), buffer, capacity)


def vcs_signature(scorer: Any, buffer: Any, capacity: int) -> int:
    """Copy the signature of a scorer's scores; returns its full length in bytes, 0 on error."""
    line = ""
    try:
        state = _handles.get(_address(scorer), ScorerState, "scorer")
        with state.model as opened:
            line = opened.signature_for(state.options)
    except BaseException as error:
        failed(error)
    return _copy_out(line, buffer, capacity)


def vcs_set_log(fn: Any, user: Any) -> None:
    """Send messages to a `vcs_log_fn`, or nowhere."""
    address, given = _address(fn), _address(user)
    if not address:
        log.set_receiver(None)
        return
    function = vcs_log_fn(address)
    log.set_receiver(lambda level, message: function(level, message.encode(errors="replace"), given))


class _Results:
    """An array of results, filled one after the other; those that an exception leaves over get its status.

    They are as large as the first one's `struct_size` says, which all must say. Raises ValueError.
    """

    def __init__(self, out: Any, count: int) -> None:
        self._left: Iterator[int] = iter(())
        if count == 0:
            return
        first = _required(out, "out")
        size = _check_size(first, ctypes.sizeof(vcs_result), "out")
        places = range(first, first + count * size, size)
        for i, place in enumerate(places):
            if (found := ctypes.c_uint32.from_address(place).value) != size:
                raise ValueError(f"out[{i}].struct_size is {found}, but that of out[0] is {size}")
        self._left = iter(places)

    def put(
        self, status: Status, n_ref: int = 0, n_gen: int = 0, scores: Sequence[float] = _NO_SCORES
    ) -> None:
        """Fill in the next result."""
        ctypes.memmove(next(self._left) + 4, _RESULT.pack(status, n_ref, n_gen, *scores), _RESULT.size)

    def __enter__(self) -> _Results:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if error:
            with suppress(StopIteration):
                while True:
                    self.put(_status_of(error))


def _score(
    scorer: Any, pairs: Sequence[tuple[Any, int, Any, int]], results: _Results
) -> list[Exception | None]:
    """Score `pairs` into `results`; per pair why it has no scores. What stops all of them is raised."""
    state = _handles.get(_address(scorer), ScorerState, "scorer")
    errors: list[Exception | None] = []
    texts: list[tuple[str, str]] = []
    for reference, reference_len, generated, generated_len in pairs:
        try:
            texts.append(
                (_text(reference, reference_len, "reference"), _text(generated, generated_len, "generated"))
            )
            errors.append(None)
        except ValueError as error:
            errors.append(error)
    with state.model as opened:
        scored = opened.iter_scores(texts, state.options)
        for i in range(len(pairs)):
            if errors[i] is None:
                result = next(scored)
                if result.scores is not None:
                    results.put(Status.VCS_OK, result.n_ref, result.n_gen, result.scores)
                    continue
                errors[i] = TextError(result.error)
            results.put(_status_of(errors[i]))
    return errors


def _align(kind: str, similarity: Any, n_ref: int, n_gen: int, gas: float, params: Any, out: Any) -> None:
    with _Results(out, 1) as results:
        core = _core_params(_params_at(params))
        scores = score_similarity(_matrix(similarity, kind, n_ref, n_gen), gas, core)
        results.put(Status.VCS_OK, n_ref, n_gen, scores)


def _address(pointer: Any) -> int:
    """A pointer as a number, 0 for NULL. The object behind it must live on."""
    if type(pointer) is int:
        return pointer
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _required(pointer: Any, name: str) -> int:
    if not (address := _address(pointer)):
        raise ValueError(f"{name} is NULL")
    return address


def _string(pointer: Any, name: str) -> str:
    """The NUL-terminated string at `pointer`: UTF-8 as a rule, but a path may hold any bytes."""
    return os.fsdecode(ctypes.string_at(_required(pointer, name)))


def _text(pointer: Any, length: int, name: str) -> str:
    address = _required(pointer, name)
    if not 0 <= length <= _MOST_BYTES:
        raise TextError(f"{name}: the text has {length:,} bytes, more than {_MOST_BYTES:,}")
    try:
        return ctypes.string_at(address, length).decode()
    except UnicodeDecodeError as error:
        raise TextError(f"{name}: not UTF-8 (at byte {error.start}: {error.reason})") from None


def _numbers(pointer: Any, count: int, name: str) -> list[int]:
    """The `count` pointers or sizes at `pointer`. It is not read if there are none."""
    if count == 0:
        return []
    found: list[int] = np.asarray(_Memory(_required(pointer, name), _SIZE, (count,))).tolist()
    return found


def _handle_at(out: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(_required(out, "out"))


def _given_back(handle: Any, kind: Any, name: str, then: Callable[[Any], None]) -> None:
    try:
        if address := _address(handle):
            then(_handles.give_back(address, kind, name))
    except BaseException as error:
        failed(error)


def _check_size(address: int, least: int, name: str) -> int:
    size: int = ctypes.c_uint32.from_address(address).value
    if size < least:
        raise ValueError(f"{name}.struct_size is {size}, less than the {least} of ABI {VCS_ABI_VERSION}")
    return size


def _params_at(pointer: Any) -> vcs_params:
    address = _required(pointer, "params")
    _check_size(address, ctypes.sizeof(vcs_params), "params")
    found = vcs_params.from_address(address)
    if found.reserved:
        raise ValueError(f"params.reserved must be 0, not {found.reserved}")
    return found


def _core_params(given: vcs_params) -> Params:
    return _kept_params(given.lct, given.context_cutoff, given.context_window)


@functools.lru_cache(maxsize=16)
def _kept_params(lct: float, context_cutoff: float, context_window: float) -> Params:
    # Checking them takes longer than scoring a small matrix.
    return Params(lct, context_cutoff, context_window)


class _Memory:
    """Numbers of the caller's, as numpy takes them without a copy."""

    def __init__(self, address: int, kind: str, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, True), "typestr": _NATIVE + kind, "shape": shape, "version": 3,
        }  # fmt: skip


def _matrix(pointer: Any, kind: str, n_ref: int, n_gen: int) -> npt.NDArray[Any]:
    address = _required(pointer, "similarity")
    for name, size in (("n_ref", n_ref), ("n_gen", n_gen)):
        if not 1 <= size <= _MOST_CHUNKS:
            raise ValueError(f"{name} must be between 1 and {_MOST_CHUNKS}, not {size}")
    return np.asarray(_Memory(address, kind, (n_ref, n_gen)))


def _copy_out(text: str, buffer: Any, capacity: int) -> int:
    full = text.encode(errors="replace")
    if (address := _address(buffer)) and capacity > 0:
        # Cut between characters.
        part = full[: capacity - 1].decode(errors="ignore").encode() + b"\0"
        ctypes.memmove(address, part, len(part))
    return len(full)
