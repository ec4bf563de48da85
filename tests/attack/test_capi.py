"""The C API with any arguments: a documented status with a message, and unchanged scores."""

from __future__ import annotations

import ctypes
import math
import shutil
from collections.abc import Callable, Iterator
from ctypes import byref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import fails
from attack.drawn import TEXTS, cases, mostly
from support.capi_cases import TEXT, Host, host, new_results
from vcs_runtime import capi
from vcs_runtime.capi import Status, build

Draw = Callable[[st.SearchStrategy[Any]], Any]

_NUMBERS = st.sampled_from((0.0, 0.5, -1.0, 2.0, math.nan, math.inf, -math.inf, 1e300, 5e-324))
_INTEGERS = st.sampled_from((0, 1, 2, 3, -1, 32, 40, 2**31 - 1, -(2**31)))
_FIELDS = {
    **dict.fromkeys(("lct", "context_cutoff", "context_window"), _NUMBERS),
    **dict.fromkeys(("chunk_size", "short_form", "reserved"), _INTEGERS),
    "struct_size": st.sampled_from((40, 32, 0, 44, 4096)),
}
CHANGES = st.sets(st.sampled_from(sorted(_FIELDS)), max_size=2).flatmap(
    lambda names: st.fixed_dictionaries({name: _FIELDS[name] for name in sorted(names)})
)
SIZES = mostly(st.none(), st.sampled_from((0, 8, 128, 4000)), times=12)
DEVICES = st.sampled_from((b"cpu", b"cuda:0", b"cuda:99", b"tpu", b"", b"\xff", None, b"cpu:1"))
CONTENT = mostly(
    TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=60)
)
#: A text with its length, at times beyond any limit, but never beyond its memory.
COUNTED = mostly(
    CONTENT.map(lambda text: (text, len(text))),
    CONTENT.flatmap(lambda text: st.tuples(st.just(text), st.integers(0, len(text)))),
    st.tuples(CONTENT, st.sampled_from((2**63, 2**64 - 1))),
    st.tuples(st.none(), st.sampled_from((0, 5))),
    times=18,
)


@pytest.fixture(
    scope="module", params=["python", pytest.param("library", marks=pytest.mark.toolchain)]
)
def opened(
    request: pytest.FixtureRequest, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("capi")
    shutil.copytree(tiny_bundle, folder / "damaged")
    (folder / "damaged/bundle.json").write_text("{")
    api: Any = capi
    if request.param == "library":
        if shutil.which("cc") is None:
            pytest.skip("no C compiler is installed")
        api = capi.load(build.build(folder / "library").file)
    with host(api, tiny_bundle, folder / "damaged") as each:
        yield each


def results_of(draw: Draw, count: int) -> Any:
    results = new_results(count)
    if (size := draw(SIZES)) is not None:
        results[count - 1].struct_size = size
    return results


def open_a_model(draw: Draw, each: Host) -> int:
    names = (
        each.bundle,
        each.damaged,
        b"",
        b"/",
        b"/nowhere",
        b"\xff",
        b"default",
        None,
        b"x" * 5000,
    )
    model = ctypes.c_void_p()
    status = each.api.vcs_model_open(draw(st.sampled_from(names)), draw(DEVICES), byref(model))
    if model.value:
        each.api.vcs_model_close(model.value)
    return int(status)


def create_a_scorer(draw: Draw, each: Host) -> int:
    scorer = ctypes.c_void_p()
    model = draw(mostly(st.just(each.model), st.sampled_from((each.closed, each.scorer, None, 8))))
    status = each.api.vcs_scorer_create(model, byref(each.params(**draw(CHANGES))), byref(scorer))
    if scorer.value:
        each.api.vcs_scorer_destroy(scorer.value)
    return int(status)


def score(draw: Draw, each: Host) -> int:
    handles = (None, 16, 1, each.model, each.closed, each.destroyed, each.orphan, 2**63)
    handle = draw(mostly(st.just(each.scorer), st.sampled_from(handles)))
    return int(each.api.vcs_score(handle, *draw(COUNTED), *draw(COUNTED), results_of(draw, 1)))


def score_a_batch(draw: Draw, each: Host) -> int:
    pairs = draw(st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=3))
    n, columns = len(pairs), []
    for column in zip(*pairs, strict=True):
        columns += [(ctypes.c_char_p * n)(*column), (ctypes.c_size_t * n)(*map(len, column))]
    return int(each.api.vcs_score_batch(each.scorer, *columns, n, results_of(draw, n)))


def align(draw: Draw, each: Host) -> int:
    rows, columns = draw(st.sampled_from((1, 2, 5))), draw(st.sampled_from((1, 2, 5)))
    count, cosine = rows * columns, mostly(st.floats(-1, 1), _NUMBERS, times=30)
    kind: Any = draw(st.sampled_from((ctypes.c_double, ctypes.c_float)))
    array = (kind * count)(*draw(st.lists(cosine, min_size=count, max_size=count)))
    # Not more rows than the array has, but what is refused.
    rows = draw(
        mostly(st.just(rows), st.sampled_from((2**31, 2**32, 2**63, 2**64 - 1, 0)), times=9)
    )
    function = each.api.vcs_align_f64 if kind is ctypes.c_double else each.api.vcs_align_f32
    params = each.params(**draw(CHANGES))
    return int(function(array, rows, columns, draw(cosine), byref(params), results_of(draw, 1)))


def check(each: Host, status: int) -> None:
    assert status in tuple(Status)
    assert status != Status.VCS_INTERNAL, f"an internal error: {each.message()}"
    assert not status or each.message()


def probe(each: Host) -> float:
    results = new_results(1)
    assert each.api.vcs_score(each.scorer, TEXT, len(TEXT), TEXT, len(TEXT), results) == 0
    return float(results[0].vcs)


@pytest.mark.parametrize("call", [open_a_model, create_a_scorer, score, score_a_batch, align])
@cases(30)
@given(data=st.data())
def test_any_call_has_a_documented_status_and_changes_no_score(
    opened: Host, call: Callable[[Draw, Host], int], data: st.DataObject
) -> None:
    before = probe(opened)
    check(opened, call(data.draw, opened))
    assert probe(opened) == before


def test_an_internal_error_is_seen(tiny_bundle: Path, tmp_path: Path, plant: Any) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "damaged")
    plant("vcs_runtime.capi.memory.matrix_at", fails)
    with (
        host(capi, tiny_bundle, tmp_path / "damaged") as each,
        pytest.raises(AssertionError, match="internal"),
    ):
        check(
            each,
            each.api.vcs_align_f64(
                (ctypes.c_double * 1)(0.5), 1, 1, 0.5, byref(each.params()), new_results(1)
            ),
        )
