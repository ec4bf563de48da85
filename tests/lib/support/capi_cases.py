"""Every misuse of the C API that has a status: one table for Python, ctypes and `misuse.c`."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref
from pathlib import Path
from typing import Any

from vcs_runtime.capi import Status, vcs_params, vcs_result
from vcs_runtime.capi.binding import FIRST_SIZES

TEXT = b"A man opens the door. The dog runs into a garden."
UNTOUCHED = -77


class Host:
    """The C API (`vcs_runtime.capi`, or a loaded library), with good and bad handles."""

    def __init__(self, api: Any, bundle: Path, damaged: Path) -> None:
        self.api, self.bundle, self.damaged = api, bytes(bundle), bytes(damaged)
        self.model, self.closed = self.open(), self.open()
        self.scorer, self.destroyed, self.orphan = map(
            self.create, (self.model, self.model, self.closed)
        )
        api.vcs_model_close(self.closed)
        api.vcs_scorer_destroy(self.destroyed)

    def open(self, bundle: bytes | None = None, device: bytes = b"cpu") -> int:
        model = ctypes.c_void_p()
        assert self.api.vcs_model_open(bundle or self.bundle, device, byref(model)) == 0, (
            self.message()
        )
        assert model.value
        return model.value

    def create(self, model: int, **changes: float) -> int:
        scorer = ctypes.c_void_p()
        assert (
            self.api.vcs_scorer_create(model, byref(self.params(**changes)), byref(scorer)) == 0
        ), self.message()
        assert scorer.value
        return scorer.value

    def params(self, **changes: float) -> vcs_params:
        params = vcs_params()
        self.api.vcs_params_default(byref(params))
        for name, value in changes.items():
            setattr(params, name, value)
        return params

    def message(self) -> str:
        length = self.api.vcs_last_error(None, 0)
        buffer = ctypes.create_string_buffer(length + 1)
        assert self.api.vcs_last_error(buffer, length + 1) == length
        return buffer.value.decode()

    def signature(self, scorer: int) -> str:
        buffer = ctypes.create_string_buffer(1000)
        self.api.vcs_signature(scorer, buffer, 1000)
        return buffer.value.decode()

    def try_open(self, bundle: bytes | None, device: bytes | None) -> int:
        model = ctypes.c_void_p(16)
        status: int = self.api.vcs_model_open(bundle, device, byref(model))
        assert model.value is None
        return status

    def try_create(self, model: int | None, **changes: float) -> int:
        scorer = ctypes.c_void_p(16)
        status: int = self.api.vcs_scorer_create(
            model, byref(self.params(**changes)), byref(scorer)
        )
        assert scorer.value is None
        return status

    def score(
        self, scorer: int | None, reference: bytes | None, generated: bytes | None, *lengths: int
    ) -> int:
        """`vcs_score`; asserts that result and call agree, and that a failure has no scores."""
        result = new_results(1)[0]
        left, right = lengths or (len(reference or b""), len(generated or b""))
        status: int = self.api.vcs_score(scorer, reference, left, generated, right, byref(result))
        assert_says(result, status)
        return status

    def align(self, values: Any, n_ref: int, n_gen: int, gas: float = 0.5, **changes: float) -> int:
        result = new_results(1)[0]
        array = (ctypes.c_double * len(values))(*values) if values else None
        status: int = self.api.vcs_align_f64(
            array, n_ref, n_gen, gas, byref(self.params(**changes)), byref(result)
        )
        assert_says(result, status)
        return status

    def batch(self, *generated: bytes, without: str = "") -> tuple[int, Any]:
        """`vcs_score_batch` of TEXT with each of `generated`; the argument `without` is NULL."""
        n = len(generated)
        arguments = {
            "references": (ctypes.c_char_p * n)(*[TEXT] * n),
            "reference_lens": (ctypes.c_size_t * n)(*[len(TEXT)] * n),
            "generated": (ctypes.c_char_p * n)(*generated),
            "generated_lens": (ctypes.c_size_t * n)(*map(len, generated)),
        }
        results = new_results(n)
        pointers = [None if name == without else array for name, array in arguments.items()]
        status: int = self.api.vcs_score_batch(self.scorer, *pointers, n, results)
        return status, results

    def close(self) -> None:
        for scorer in (self.scorer, self.orphan):
            self.api.vcs_scorer_destroy(scorer)
        self.api.vcs_model_close(self.model)


@contextmanager
def host(api: Any, bundle: Path, damaged: Path) -> Iterator[Host]:
    opened = Host(api, bundle, damaged)
    try:
        yield opened
    finally:
        opened.close()


def new_results(n: int) -> Any:
    results = (vcs_result * n)()
    for result in results:
        result.struct_size, result.status = ctypes.sizeof(vcs_result), UNTOUCHED
    return results


def assert_says(result: Any, status: int) -> None:
    """A result has the status of its call, and scores if that is OK."""
    assert result.status == status
    assert math.isnan(result.vcs) == (status != 0)
    assert (result.n_ref > 0) == (status == 0)


def _small(kind: Any) -> Any:
    """A struct that is smaller than in the first header."""
    struct = kind()
    struct.struct_size = FIRST_SIZES[kind] - 8
    return byref(struct)


def _uneven(h: Host) -> int:
    texts, lengths = (ctypes.c_char_p * 2)(TEXT, TEXT), (ctypes.c_size_t * 2)(len(TEXT), len(TEXT))
    results = new_results(2)
    results[1].struct_size = 0
    status: int = h.api.vcs_score_batch(h.scorer, texts, lengths, texts, lengths, 2, results)
    assert results[0].status == UNTOUCHED
    return status


Call = Callable[[Host], int]


def _create(**changed: Any) -> Call:
    return lambda h: h.try_create(h.model, **changed)


def _score(*texts: Any) -> Call:
    return lambda h: h.score(h.scorer, *texts)


def _batch_without(name: str) -> Call:
    return lambda h: h.batch(TEXT, without=name)[0]


def _align(*arguments: Any, **changed: Any) -> Call:
    return lambda h: h.align(*arguments, **changed)


_GOOD = Status.VCS_OK
_BAD = Status.VCS_INVALID_ARGUMENT
_TEXT = Status.VCS_BAD_TEXT
_OUT = ctypes.c_void_p()
_ONE = (ctypes.c_double * 1)(0.5)
_SIZES = "of ABI 1: set it to sizeof"

#: The name of a case: its status, a part of its message, the call.
CASES: dict[str, tuple[Status, str, Call]] = {
    "open: NULL bundle": (_BAD, "bundle is NULL", lambda h: h.try_open(None, b"cpu")),
    "open: NULL device": (_BAD, "device is NULL", lambda h: h.try_open(h.bundle, None)),
    "open: NULL out": (_BAD, "out is NULL", lambda h: h.api.vcs_model_open(h.bundle, b"cpu", None)),
    "open: missing": (
        Status.VCS_NOT_FOUND,
        "no such folder",
        lambda h: h.try_open(b"/nowhere", b"cpu"),
    ),
    "open: no bundle": (Status.VCS_NOT_FOUND, "no bundle.json", lambda h: h.try_open(b"/", b"cpu")),
    "open: damaged": (Status.VCS_BAD_BUNDLE, "sha256", lambda h: h.try_open(h.damaged, b"cpu")),
    "open: unknown device": (Status.VCS_DEVICE, "'tpu'", lambda h: h.try_open(h.bundle, b"tpu")),
    "open: absent device": (Status.VCS_DEVICE, "cuda", lambda h: h.try_open(h.bundle, b"cuda:99")),
    "create: NULL model": (_BAD, "model is NULL", lambda h: h.try_create(None)),
    "create: NULL params": (
        _BAD,
        "params is NULL",
        lambda h: h.api.vcs_scorer_create(h.model, None, byref(_OUT)),
    ),
    "create: NULL out": (
        _BAD,
        "out is NULL",
        lambda h: h.api.vcs_scorer_create(h.model, byref(h.params()), None),
    ),
    "create: small params": (
        _BAD,
        f"params.struct_size is 32, less than the 40 of the first vcs_params {_SIZES}(vcs_params)",
        lambda h: h.api.vcs_scorer_create(h.model, _small(vcs_params), byref(_OUT)),
    ),
    "create: chunk_size 0": (_BAD, "chunk_size", _create(chunk_size=0)),
    "create: short_form 2": (_BAD, "short_form", _create(short_form=2)),
    "create: reserved 1": (_BAD, "reserved", _create(reserved=1)),
    "create: lct -1": (_BAD, "lct must be at least 0", _create(lct=-1)),
    "create: context_cutoff NaN": (
        _BAD,
        "context_cutoff must be finite",
        _create(context_cutoff=math.nan),
    ),
    "create: context_window 0": (_BAD, "context_window", _create(context_window=0)),
    "create: closed model": (_BAD, "model was freed before", lambda h: h.try_create(h.closed)),
    "create: a scorer as model": (_BAD, "model was freed before", lambda h: h.try_create(h.scorer)),
    "score: NULL scorer": (_BAD, "scorer is NULL", lambda h: h.score(None, TEXT, TEXT)),
    "score: destroyed scorer": (
        _BAD,
        "scorer was freed before",
        lambda h: h.score(h.destroyed, TEXT, TEXT),
    ),
    "score: closed model": (_BAD, "model was closed", lambda h: h.score(h.orphan, TEXT, TEXT)),
    "score: NULL reference": (_BAD, "reference is NULL", _score(None, TEXT)),
    "score: NULL generated": (_BAD, "generated is NULL", _score(TEXT, None)),
    "score: NULL out": (
        _BAD,
        "out is NULL",
        lambda h: h.api.vcs_score(h.scorer, TEXT, len(TEXT), TEXT, len(TEXT), None),
    ),
    "score: small result": (
        _BAD,
        f"out.struct_size is 128, less than the 136 of the first vcs_result {_SIZES}(vcs_result)",
        lambda h: h.api.vcs_score(h.scorer, TEXT, len(TEXT), TEXT, len(TEXT), _small(vcs_result)),
    ),
    "score: zero length": (_TEXT, "generated: the text is empty", _score(TEXT, b"")),
    "score: not UTF-8": (_TEXT, "reference: not UTF-8 (at byte 1", _score(b"a\xff.", TEXT)),
    "score: NUL inside": (
        _TEXT,
        "reference: the text holds a NUL",
        _score(b"A man.\0 A dog.", TEXT),
    ),
    "score: punctuation alone": (_TEXT, "only punctuation", _score(b"...!", TEXT)),
    "score: endless": (_TEXT, "bytes, more than", _score(TEXT, TEXT, 2**64 - 1, len(TEXT))),
    "batch: NULL references": (_BAD, "references is NULL", _batch_without("references")),
    "batch: NULL reference_lens": (
        _BAD,
        "reference_lens is NULL",
        _batch_without("reference_lens"),
    ),
    "batch: NULL generated": (_BAD, "generated is NULL", _batch_without("generated")),
    "batch: NULL generated_lens": (
        _BAD,
        "generated_lens is NULL",
        _batch_without("generated_lens"),
    ),
    "batch: NULL out": (
        _BAD,
        "out is NULL",
        lambda h: h.api.vcs_score_batch(h.scorer, None, None, None, None, 1, None),
    ),
    "batch: NULL scorer": (
        _BAD,
        "scorer is NULL",
        lambda h: h.api.vcs_score_batch(None, None, None, None, None, 0, None),
    ),
    "batch: uneven results": (_BAD, "out[1].struct_size is 0", _uneven),
    "batch: nothing": (
        _GOOD,
        "",
        lambda h: h.api.vcs_score_batch(h.scorer, None, None, None, None, 0, None),
    ),
    "batch: a bad pair": (
        _TEXT,
        "pairs[1]: generated: the text is empty",
        lambda h: h.batch(TEXT, b"", TEXT)[0],
    ),
    "align: NULL similarity": (_BAD, "similarity is NULL", _align(None, 1, 1)),
    "align: NULL params": (
        _BAD,
        "params is NULL",
        lambda h: h.api.vcs_align_f64(_ONE, 1, 1, 0.5, None, new_results(1)),
    ),
    "align: NULL out": (
        _BAD,
        "out is NULL",
        lambda h: h.api.vcs_align_f64(_ONE, 1, 1, 0.5, byref(h.params()), None),
    ),
    "align: no rows": (_BAD, "n_ref must be between 1", _align([0.5], 0, 1)),
    "align: endless": (_BAD, "n_gen must be between 1", _align([0.5], 1, 2**64 - 1)),
    "align: NaN": (_BAD, "NaN or infinity", _align([0.5, math.nan], 1, 2)),
    "align: gas 2": (_BAD, "gas", _align([0.5], 1, 1, 2.0)),
    "align: lct -1": (_BAD, "lct", _align([0.5], 1, 1, lct=-1)),
}
