"""The C API with arguments of any kind: a documented status with a message, and the same scores afterwards."""

from __future__ import annotations

import ctypes
import math
import shutil
from collections.abc import Iterator
from ctypes import byref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.drawn import TEXTS, cases, chance, mostly
from support.capi_cases import TEXT, Host, host, new_results
from vcs_runtime import capi
from vcs_runtime.capi import Status, build

_NUMBERS = st.sampled_from((0.0, 0.5, -1.0, 2.0, math.nan, math.inf, -math.inf, 1e300, 5e-324))
_INTEGERS = st.sampled_from((0, 1, 2, 3, -1, 32, 40, 2**31 - 1, -(2**31)))
_DEVICES = st.sampled_from((b"cpu", b"cuda:0", b"cuda:99", b"tpu", b"", b"\xff", None, b"cpu:1"))
CHANGES = st.dictionaries(
    st.sampled_from(("lct", "context_cutoff", "context_window")), _NUMBERS, max_size=1
) | st.fixed_dictionaries(
    {},
    optional={
        "struct_size": st.sampled_from((40, 32, 0, 44, 4096)),
        "chunk_size": _INTEGERS,
        "short_form": _INTEGERS,
        "reserved": _INTEGERS,
    },
)
CONTENT = mostly(TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=60))


@pytest.fixture(scope="module", params=["python", pytest.param("library", marks=pytest.mark.toolchain)])
def opened(
    request: pytest.FixtureRequest, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("capi")
    damaged = folder / "damaged"
    shutil.copytree(tiny_bundle, damaged)
    (damaged / "bundle.json").write_text("{")
    api: Any = capi
    if request.param == "library":
        if shutil.which("cc") is None:
            pytest.skip("no C compiler is installed")
        api = capi.load(build.build(folder / "library").file)
    with host(api, tiny_bundle, damaged) as each:
        yield each


def check(each: Host, status: int) -> None:
    assert status in tuple(Status), status
    assert status != Status.VCS_INTERNAL, f"status {status}: {each.message()}"
    assert not status or each.message(), f"status {status} without a message"


def probe(each: Host) -> float:
    result = new_results(1)[0]
    assert each.api.vcs_score(each.scorer, TEXT, len(TEXT), TEXT, len(TEXT), byref(result)) == 0
    return float(result.vcs)


@cases(8)
@given(st.data())
def test_any_model_and_any_parameters_open_or_are_refused(opened: Host, data: st.DataObject) -> None:
    names = (opened.bundle, opened.damaged, b"", b"/", b"/nowhere", b"\xff", b"default", None, b"x" * 5000)
    model, scorer = ctypes.c_void_p(), ctypes.c_void_p()
    check(
        opened,
        int(opened.api.vcs_model_open(data.draw(st.sampled_from(names)), data.draw(_DEVICES), byref(model))),
    )
    handles = (opened.model, opened.model, opened.model, opened.closed, opened.scorer, None, 8)
    params = opened.params(**data.draw(CHANGES))
    check(
        opened,
        int(opened.api.vcs_scorer_create(data.draw(st.sampled_from(handles)), byref(params), byref(scorer))),
    )
    if scorer.value:
        opened.api.vcs_scorer_destroy(scorer.value)
    if model.value:
        opened.api.vcs_model_close(model.value)


@st.composite
def texts(draw: st.DrawFn) -> tuple[bytes | None, int]:
    """A text with its length, which is at times beyond what any text may have, never beyond its memory else."""
    if chance(draw, 5):
        return None, draw(st.sampled_from((0, 5)))
    content = draw(CONTENT)
    return content, draw(
        mostly(
            st.just(len(content)), st.integers(0, len(content)), st.sampled_from((2**63, 2**64 - 1)), times=18
        )
    )


@cases(80)
@given(
    data=st.data(),
    left=texts(),
    right=texts(),
    size=mostly(st.none(), st.sampled_from((0, 8, 128)), times=19),
)
def test_any_handle_and_texts_are_scored_or_refused(
    opened: Host, data: st.DataObject, left: Any, right: Any, size: int | None
) -> None:
    before = probe(opened)
    handles = (None, 16, 1, opened.model, opened.closed, opened.destroyed, opened.orphan, 2**63)
    handle = data.draw(mostly(st.just(opened.scorer), st.sampled_from(handles)))
    result = new_results(1)[0]
    if size is not None:
        result.struct_size = size
    check(opened, int(opened.api.vcs_score(handle, *left, *right, byref(result))))
    assert probe(opened) == before, "another score than before"


@cases(30)
@given(
    pairs=st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=3),
    size=mostly(st.none(), st.sampled_from((0, 8, 128, 4000)), times=9),
)
def test_any_batch_is_scored_or_refused(
    opened: Host, pairs: list[tuple[bytes, bytes]], size: int | None
) -> None:
    n = len(pairs)
    results = new_results(n)
    if size is not None:
        results[n - 1].struct_size = size
    columns: list[Any] = []
    for column in zip(*pairs, strict=True):
        columns += [(ctypes.c_char_p * n)(*column), (ctypes.c_size_t * n)(*map(len, column))]
    check(opened, int(opened.api.vcs_score_batch(opened.scorer, *columns, n, results)))


@cases(30)
@given(
    shape=st.tuples(*[st.sampled_from((1, 2, 5))] * 2), rows=mostly(st.none(), st.sampled_from((2**31, 2**32, 2**63, 2**64 - 1, 0)), times=9),
    gas=st.floats(-1, 1) | _NUMBERS, double=st.booleans(), changes=CHANGES, data=st.data(),
)  # fmt: skip
def test_any_matrix_is_aligned_or_refused(
    opened: Host,
    shape: tuple[int, int],
    rows: int | None,
    gas: float,
    double: bool,
    changes: Any,
    data: st.DataObject,
) -> None:
    count = math.prod(shape)
    values = data.draw(st.lists(mostly(st.floats(-1, 1), _NUMBERS, times=30), min_size=count, max_size=count))
    kind: Any = ctypes.c_double if double else ctypes.c_float
    align = opened.api.vcs_align_f64 if double else opened.api.vcs_align_f32
    # Not more rows than the array has, but what is refused.
    first = shape[0] if rows is None else rows
    array, result = (kind * count)(*values), new_results(1)[0]
    check(opened, int(align(array, first, shape[1], gas, byref(opened.params(**changes)), byref(result))))


def test_an_internal_error_is_seen(tiny_bundle: Path, tmp_path: Path, plant: Any) -> None:
    def fails(*arguments: object) -> None:
        raise KeyError("x")

    shutil.copytree(tiny_bundle, tmp_path / "damaged")
    plant("vcs_runtime.capi.memory.matrix_at", lambda _: fails)
    with (
        host(capi, tiny_bundle, tmp_path / "damaged") as each,
        pytest.raises(AssertionError, match="status 7"),
    ):
        check(
            each,
            each.api.vcs_align_f64(
                (ctypes.c_double * 1)(0.5), 1, 1, 0.5, byref(each.params()), byref(new_results(1)[0])
            ),
        )
