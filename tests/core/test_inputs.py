"""What is refused, and how the refusal reads."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import vcs_numba
from vcs_numba import Params, align, hm_cf, score_batch, score_embeddings, score_similarity

GOOD = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.4]]


def with_value(value: float, dtype: type = np.float64, shape: tuple[int, int] = (3, 2)) -> Any:
    similarity = np.full(shape, 0.5, dtype)
    similarity[shape[0] // 2, shape[1] // 2] = value
    return similarity


BAD_MATRICES = {
    "nan": with_value(np.nan),
    "nan in float32": with_value(np.nan, np.float32),
    "infinity": with_value(np.inf),
    "minus infinity": with_value(-np.inf),
    "minus infinity in float32": with_value(-np.inf, np.float32),
    "nan in a column-ordered matrix": np.asfortranarray(with_value(np.nan)),
    "nan in a large matrix": with_value(np.nan, shape=(600, 700)),
    "minus infinity in a large matrix": with_value(-np.inf, np.float32, (600, 700)),
    "all nan": np.full((3, 2), np.nan),
    "all nan, large": np.full((600, 700), np.nan),
    "one axis": np.ones(4),
    "three axes": np.ones((2, 2, 2)),
    "a number": 0.5,
    "no rows": np.ones((0, 3)),
    "no columns": np.ones((3, 0)),
    "complex": np.ones((2, 2), complex),
    "bool": np.ones((2, 2), bool),
    "text": [["a", "b"]],
    "objects": np.array([[None, 1.0]], dtype=object),
    "ragged": [[0.1], [0.1, 0.2]],
    "none": None,
    "sums that overflow": np.full((3, 3), 1.7e308),
    "a cosine of 7": with_value(7),
    "a cosine of 7 in a large matrix": with_value(7, np.float32, (600, 700)),
    "a cosine of 1.002": with_value(1.002),
    "a row of -7": [[-7.0, -7.0], [0.5, 1.0]],
}


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_bad_matrices_are_refused_by_name(name: str) -> None:
    bad = BAD_MATRICES[name]
    with pytest.raises(ValueError, match=r"^similarity(:| must) "):
        score_similarity(bad, 0.5)
    with pytest.raises(ValueError, match=r"^similarity(:| must) "):
        align(bad)
    with pytest.raises(ValueError, match=r"^similarity(:| must) "):
        hm_cf(bad, 0.5)
    for threads in (1, 5):
        matrices = [GOOD] * threads + [bad] + [np.array(GOOD)] * 3 + [bad]
        with pytest.raises(ValueError, match=rf"^similarities\[{threads}\](:| must) "):
            score_batch(matrices, [0.5] * len(matrices))


def test_a_batch_names_the_first_bad_pair_whatever_its_size() -> None:
    matrices = [np.array(GOOD)] * 50
    matrices[20] = with_value(np.nan, shape=(900, 900))
    matrices[10] = with_value(np.inf)
    with pytest.raises(ValueError, match=r"^similarities\[10\]: holds NaN or infinity"):
        score_batch(matrices, np.full(50, 0.5))


@pytest.mark.parametrize(
    "gas", [np.nan, np.inf, -np.inf, 1.5, -1.5, 87, None, "0.5", True, [0.1, 0.2], 1j, 10**400]
)
def test_bad_gas_is_refused(gas: Any) -> None:
    with pytest.raises(ValueError, match=r"^gas must "):
        score_similarity(GOOD, gas)
    with pytest.raises(ValueError, match=r"^gas must "):
        align(GOOD).scores(gas)
    if gas is not True:  # beside a float, numpy makes it one
        with pytest.raises(ValueError, match=r"^gas(\[1\])?(:| must) "):
            score_batch([GOOD, GOOD], [0.5, gas])


@pytest.mark.parametrize(
    "gas", [1, 0, -1, np.float32(0.5), np.float64(1.0000001), np.int64(1), np.array(0.25)]
)
def test_good_gas_is_kept_as_it_is(gas: Any) -> None:
    assert score_similarity(GOOD, gas).gas == float(gas)
    assert score_batch([GOOD], [gas])["gas"][0] == float(gas)


@pytest.mark.parametrize("gas", [[0.5], [0.5] * 3, 0.5, [[0.5, 0.5]], None])
def test_gas_of_a_batch_must_have_one_value_per_matrix(gas: Any) -> None:
    with pytest.raises(ValueError, match=r"^gas must"):
        score_batch([GOOD, GOOD], gas)


@pytest.mark.parametrize("params", [None, {"lct": 1}, 0.5, Params])
def test_params_of_another_type_are_refused(params: Any) -> None:
    vectors = np.eye(3)
    for call in (
        lambda: score_similarity(GOOD, 0.5, params),
        lambda: align(GOOD, params),
        lambda: score_batch([GOOD], [0.5], params),
        lambda: score_embeddings(vectors, vectors, vectors[0], vectors[0], params),
    ):
        with pytest.raises(ValueError, match=r"^params must be"):
            call()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("lct", [-0.1, np.nan, np.inf, True, "1", None, 1j]),
        ("context_cutoff", [-0.01, 1.01, np.nan, False]),
        ("context_window", [0, -1.0, np.inf, np.nan, "4"]),
        ("lct_penalty", ["Full", "", None, 1]),
        ("small_text", ["papers", None, True]),
        ("regularizer", ["windows", None]),
        ("nas_blend_factor", [-1.01, 1.01, np.nan]),
        ("nas_coverage_cutoff", [-0.01, 1.01, np.inf]),
    ],
)
def test_params_out_of_range_are_refused_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^{field} must be "):
            Params(**{field: value})


def test_params_are_frozen_values() -> None:
    params = Params(lct=1, context_window=np.float32(2))
    assert params == Params(lct=1.0, context_window=2.0)
    assert type(params.lct) is float
    assert type(params.context_window) is float
    score_similarity(GOOD, 0.5, params)
    assert pickle.loads(pickle.dumps(params)) == params
    assert dataclasses.replace(params, lct=0.0) == Params(context_window=2.0)
    names = (
        "lct context_cutoff context_window lct_penalty small_text regularizer nas_blend_factor"
        " nas_coverage_cutoff"
    )
    assert list(dataclasses.asdict(Params())) == names.split()
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.lct = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("argument", ["ref_chunks", "gen_chunks", "ref_text", "gen_text"])
def test_bad_embeddings_are_refused_by_name(argument: str) -> None:
    good = {
        "ref_chunks": np.eye(4),
        "gen_chunks": np.eye(4)[:2],
        "ref_text": np.ones(4),
        "gen_text": np.ones(4),
    }
    one_axis = good[argument].ndim == 1
    bad = [
        np.where(np.ones_like(good[argument]) > 0, np.nan, 0),
        np.where(good[argument] > 0, np.inf, 0),
        np.zeros_like(good[argument]),
        np.ones((4,) if not one_axis else (1, 4)),
        np.ones((0,) if one_axis else (0, 4)),
        np.ones((4,) if one_axis else (2, 4), complex),
        None,
    ]
    if argument != "ref_chunks":
        bad.append(np.ones((5,) if one_axis else (2, 5)))
    for value in bad:
        with pytest.raises(ValueError, match=rf"^{argument}(:| must) "):
            score_embeddings(**(good | {argument: value}))
    assert score_embeddings(**good).gas == 1.0


def test_extreme_but_finite_vectors_are_normalised() -> None:
    for factor in (1e-300, 1e300):
        big = np.eye(3) * factor
        assert score_embeddings(big, big, big[0], big[0]).las == 1.0


def test_cosines_beyond_1_by_rounding_are_accepted() -> None:
    for sign in (1, -1):
        near = with_value(1.0009 * sign)
        assert score_similarity(near, 0.5).las <= 1.001
        assert hm_cf(near, 0.5).fine_f1 <= 1.001
        score_batch([near], [0.5])
        align(near)


def test_other_real_types_are_accepted() -> None:
    expected = score_similarity(GOOD, 0.5)
    half = np.array(GOOD, np.float16)
    assert score_similarity(half, 0.5) == score_similarity(half.astype(np.float64), 0.5)
    assert score_similarity(np.array(GOOD, np.longdouble), 0.5) == expected
    assert score_similarity([[1, 0], [0, 1]], 0.5) == score_similarity(np.eye(2), 0.5)


@pytest.mark.parametrize("similarities", [None, 5, 0.5])
def test_a_batch_that_is_no_sequence_is_refused(similarities: Any) -> None:
    with pytest.raises(ValueError, match=r"^similarities must "):
        score_batch(similarities, [0.5])


def test_read_only_gas_is_accepted() -> None:
    gas = np.array([0.5])
    gas.flags.writeable = False
    assert score_batch([GOOD], gas)["gas"][0] == 0.5


def test_params_that_were_used_go_through_memory_that_cannot_be_written() -> None:
    params = Params(lct=0.5)
    expected = score_similarity(GOOD, 0.5, params)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(params, protocol=5, buffer_callback=buffers.append)
    # As Ray hands it over.
    arrived = pickle.loads(data, buffers=[bytes(buffer) for buffer in buffers])
    assert arrived == params
    assert score_similarity(GOOD, 0.5, arrived) == expected


def test_the_given_arrays_are_left_alone() -> None:
    similarity = np.array(GOOD)
    before = similarity.copy()
    score_similarity(similarity, 0.5)
    score_batch([similarity], [0.5])
    align(similarity)
    assert np.array_equal(similarity, before)
    assert vcs_numba.SCORE_DTYPE.itemsize == 16 * 8
