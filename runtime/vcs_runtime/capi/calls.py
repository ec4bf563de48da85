"""The functions of `vcs_runtime.h` in Python: the library calls them, and so may a Python program.

A pointer is an integer (as C passes it), None, or what ctypes accepts for a pointer: bytes, an
array, `byref(...)`. Every function returns the same values as its namesake in C, and raises no
exception.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

from vcs_numba import score_similarity
from vcs_runtime._version import __version__
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.capi import log, memory
from vcs_runtime.capi.binding import VCS_ABI_VERSION, Status, vcs_log_fn, vcs_params
from vcs_runtime.capi.failures import Refusal, failed, last_message, returns_status, status_of
from vcs_runtime.errors import BundleError, TextError
from vcs_runtime.inference.device import check_device
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Pair
from vcs_runtime.scoring.scorer import Scorer

_CLOSED: Final = "the scorer's model was closed"


class Model:
    """An open `Scorer`.

    It is closed when its handle is closed *and* no call uses it any more.

    A call uses it by `with model as scorer:`, which raises ValueError for a closed model.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._users = 1  # the handle; each call adds one
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Refuse new calls. The last running call closes the scorer."""
        with self._lock:
            if self._closed:  # by another thread, at the same time
                return
            self._closed = True
        self.__exit__()

    def __enter__(self) -> Scorer:
        with self._lock:
            if self._closed:
                raise ValueError(_CLOSED)
            self._users += 1
        return self._scorer

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            unused = self._users == 0
        if unused:
            self._scorer.close()


@dataclass(frozen=True)
class ScorerState:
    """A scorer of the C API."""

    model: Model
    options: Options


Object = TypeVar("Object", Model, ScorerState)


class Handles:
    """Objects by number. No number is used twice, so that a closed handle is recognised."""

    def __init__(self) -> None:
        self._objects: dict[int, Model | ScorerState] = {}
        self._numbers = itertools.count(16, 16)  # C sees pointers: never NULL, and aligned

    def keep(self, item: Model | ScorerState) -> int:
        """Return a new handle for an object."""
        handle = next(self._numbers)
        self._objects[handle] = item
        return handle

    def get(self, handle: int, kind: type[Object], name: str) -> Object:
        """Return the object of a handle.

        Raises ValueError with `name` if the handle has no object of this kind.
        """
        item = self._objects.get(handle)
        if not isinstance(item, kind):
            raise ValueError(_unknown(handle, name))
        return item

    def give_back(self, handle: int, kind: type[Object], name: str) -> Object:
        """Return the object of a handle and make the handle invalid. Errors as for `get`."""
        item = self.get(handle, kind, name)
        if self._objects.pop(handle, None) is None:  # another thread was faster
            raise ValueError(_unknown(handle, name))
        return item


def _unknown(handle: int, name: str) -> str:
    return f"{name} was freed before, or never was one" if handle else f"{name} is NULL"


_handles: Final = Handles()


def vcs_abi_version() -> int:
    """Return the version of the ABI, `VCS_ABI_VERSION` of the header."""
    return VCS_ABI_VERSION


def vcs_version() -> bytes:
    """Return the version of vcs-runtime."""
    return __version__.encode()


def vcs_params_default(params: Any) -> None:
    """Write the default parameters to a `vcs_params`."""
    address = memory.address_of(params)
    if not address:
        failed(ValueError("params is NULL"))
        return
    options = Options()
    target = vcs_params.from_address(address)
    target.struct_size = ctypes.sizeof(vcs_params)
    target.chunk_size = options.chunk_size
    target.short_form = int(options.short)
    target.reserved = 0
    target.lct = options.params.lct
    target.context_cutoff = options.params.context_cutoff
    target.context_window = options.params.context_window


@returns_status
def vcs_model_open(bundle: Any, device: Any, out: Any) -> None:
    """Open a bundle on a device and write its handle to `out`; NULL after an error."""
    target = memory.handle_at(out)
    bundle_name = memory.read_string(bundle, "bundle")
    device_name = memory.read_string(device, "device")
    try:
        folder = bundle_folder(bundle_name)
    except BundleError as error:
        raise Refusal(Status.VCS_NOT_FOUND, str(error)) from None
    try:
        check_device(device_name)
    except ValueError as error:
        raise Refusal(Status.VCS_DEVICE, str(error)) from None
    scorer = Scorer.from_config(ScorerConfig(folder, device_name))
    chosen = scorer.embedder.device
    log.log(log.INFORMATION, f"{folder} is open on {chosen.provider_name} ({chosen.reason})")
    target.value = _handles.keep(Model(scorer))


def vcs_model_close(model: Any) -> None:
    """Close a model after its running calls have ended. None is allowed."""
    _give_back(model, Model, "model", Model.close)


@returns_status
def vcs_scorer_create(model: Any, params: Any, out: Any) -> None:
    """Create a scorer on a model and write its handle to `out`; NULL after an error."""
    target = memory.handle_at(out)
    opened = _handles.get(memory.address_of(model), Model, "model")
    values = memory.read_params(params)
    if values.short_form not in (0, 1):
        raise ValueError(f"params.short_form must be 0 or 1, not {values.short_form}")
    options = Options(values.chunk_size, memory.core_params(values), short=bool(values.short_form))
    target.value = _handles.keep(ScorerState(opened, options))


def vcs_scorer_destroy(scorer: Any) -> None:
    """Destroy a scorer. None is allowed."""
    _give_back(scorer, ScorerState, "scorer", lambda _: None)


@returns_status
def vcs_score(
    scorer: Any, reference: Any, reference_len: int, generated: Any, generated_len: int, out: Any
) -> None:
    """Score one pair and write a `vcs_result`."""
    with memory.Results(out, 1) as results:
        [error] = _score(scorer, [(reference, reference_len, generated, generated_len)], results)
        if error:
            raise error


@returns_status
def vcs_score_batch(
    scorer: Any,
    references: Any,
    reference_lens: Any,
    generated: Any,
    generated_lens: Any,
    n: int,
    out: Any,
) -> None:
    """Score `n` pairs and write an array of `vcs_result`, each with a status."""
    arrays = {
        "references": references,
        "reference_lens": reference_lens,
        "generated": generated,
        "generated_lens": generated_lens,
    }
    with memory.Results(out, n) as results:
        columns = [memory.read_numbers(array, n, name) for name, array in arrays.items()]
        errors = _score(scorer, list(zip(*columns, strict=True)), results)
    bad = [i for i, error in enumerate(errors) if error]
    if bad:
        first = errors[bad[0]]
        others = f" (and {len(bad) - 1} more of {n})" if len(bad) > 1 else ""
        raise Refusal(status_of(first), f"pairs[{bad[0]}]: {first}{others}")


@returns_status
def vcs_align_f32(
    similarity: Any, n_ref: int, n_gen: int, gas: float, params: Any, out: Any
) -> None:
    """Score a row-major float32 similarity matrix `(n_ref, n_gen)` and write a `vcs_result`."""
    _align("f4", similarity, n_ref, n_gen, gas, params, out)


@returns_status
def vcs_align_f64(
    similarity: Any, n_ref: int, n_gen: int, gas: float, params: Any, out: Any
) -> None:
    """Score a row-major float64 similarity matrix `(n_ref, n_gen)` and write a `vcs_result`."""
    _align("f8", similarity, n_ref, n_gen, gas, params, out)


def vcs_last_error(buffer: Any, capacity: int) -> int:
    """Copy the message of this thread's last error. Returns its full length in bytes."""
    return memory.write_string(last_message(), buffer, capacity)


def vcs_signature(scorer: Any, buffer: Any, capacity: int) -> int:
    """Copy the signature of a scorer's scores.

    Returns its full length in bytes, 0 after an error.
    """
    signature = ""
    try:
        state = _handles.get(memory.address_of(scorer), ScorerState, "scorer")
        with state.model as opened:
            signature = opened.signature_for(state.options)
    except BaseException as error:
        failed(error)
    return memory.write_string(signature, buffer, capacity)


def vcs_set_log(fn: Any, user: Any) -> None:
    """Send messages to a `vcs_log_fn`; NULL turns them off."""
    address = memory.address_of(fn)
    user_data = memory.address_of(user)
    if not address:
        log.set_receiver(None)
        return
    function = vcs_log_fn(address)
    log.set_receiver(
        lambda level, message: function(level, message.encode(errors="replace"), user_data)
    )


def _score(
    scorer: Any, pairs: Sequence[tuple[Any, int, Any, int]], results: memory.Results
) -> list[Exception | None]:
    """Score pairs into `results`.

    Returns the error of each pair, and raises errors that concern the whole call.
    """
    state = _handles.get(memory.address_of(scorer), ScorerState, "scorer")
    items = [_read_pair(*pair) for pair in pairs]
    errors: list[Exception | None] = []
    with state.model as opened:
        for item, result, _ in chain.from_iterable(opened.stream(items, _pair_of, state.options)):
            if result.scores is not None:
                results.put(Status.VCS_OK, result.n_ref, result.n_gen, result.scores, result.noted)
                errors.append(None)
                continue
            error = item if isinstance(item, ValueError) else TextError(result.error)
            results.put(status_of(error))
            errors.append(error)
    return errors


def _read_pair(
    reference: Any, reference_len: int, generated: Any, generated_len: int
) -> tuple[str, str] | ValueError:
    """Return the texts of a pair, or the error of the text that cannot be read."""
    try:
        return (
            memory.read_text(reference, reference_len, "reference"),
            memory.read_text(generated, generated_len, "generated"),
        )
    except ValueError as error:
        return error


def _pair_of(item: Pair | ValueError) -> Pair:
    if isinstance(item, ValueError):
        raise TextError(str(item))
    return item


def _align(
    kind: str, similarity: Any, n_ref: int, n_gen: int, gas: float, params: Any, out: Any
) -> None:
    with memory.Results(out, 1) as results:
        core = memory.core_params(memory.read_params(params))
        scores = score_similarity(memory.matrix_at(similarity, kind, n_ref, n_gen), gas, core)
        results.put(Status.VCS_OK, n_ref, n_gen, scores)


def _give_back(handle: Any, kind: Any, name: str, close: Callable[[Any], None]) -> None:
    try:
        address = memory.address_of(handle)
        if address:
            close(_handles.give_back(address, kind, name))
    except BaseException as error:
        failed(error)
