"""The alignment core with arrays of any shape, type and content: finite scores or clear errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcs_numba
from attack.drawn import ANYTHING, PARAMS, cases, chance, mostly

_DTYPES = ("f4", "f8", "f2", "i4", "i8", "u1", "?", "c8", "O", "U3", ">f8", "longdouble")
_CONTENT = (0.0, 1.0, -1.0, 0.5, 1.0000001, -1.5, math.nan, math.inf, -math.inf, 1e300, 5e-324)
_SIZES = st.sampled_from((1, 2, 3, 5, 8, 17, 40))
_SHAPES = mostly(
    st.tuples(_SIZES, _SIZES),
    st.tuples(_SIZES, st.just(0)),
    st.tuples(_SIZES),
    st.tuples(_SIZES, _SIZES, st.just(2)),
    st.sampled_from(((), (0, 0), (1, 1))),
    times=16,
)
_VIEWS: tuple[Callable[[Any], Any], ...] = (
    lambda matrix: matrix.T,
    lambda matrix: matrix[::2],
    lambda matrix: matrix[:, ::-1],
    np.asfortranarray,
    lambda matrix: np.repeat(matrix, 2, 1)[:, ::2],
)
GENERATORS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
GAS = mostly(st.floats(-1, 1), ANYTHING, times=6)


@st.composite
def matrices(draw: st.DrawFn) -> Any:
    """An array of cosines, mostly; or what stands in its place."""
    if chance(draw, 5):
        return draw(ANYTHING)
    shape = draw(_SHAPES)
    matrix: Any = draw(GENERATORS).uniform(-1, 1, shape)
    if chance(draw, 15):
        matrix = np.round(matrix, 1)  # ties
    elif chance(draw, 5):
        matrix = np.full(shape, draw(st.sampled_from(_CONTENT)))
    if matrix.size and chance(draw, 15):
        matrix = np.array(matrix)
        matrix.flat[draw(st.integers(0, matrix.size - 1))] = draw(st.sampled_from(_CONTENT))
    if chance(draw, 30):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrix = matrix.astype(draw(st.sampled_from(_DTYPES)))
    # One number of dtype object becomes a float.
    if isinstance(matrix, np.ndarray):
        if matrix.ndim == 2 and chance(draw, 30):
            matrix = draw(st.sampled_from(_VIEWS))(matrix)
        if chance(draw, 10):
            matrix.flags.writeable = False
        if chance(draw, 10):
            return matrix.tolist()
    return matrix


def check(arrays: list[Any], call: Callable[[], None]) -> None:
    """Call the core; it changes no argument, and an error has a message."""
    before = [_copied(each) for each in arrays]
    try:
        call()
    except (ValueError, TypeError) as error:
        if not str(error):
            raise AssertionError(f"an empty message: {error!r}") from error
    assert [_copied(each) for each in arrays] == before, "an argument was changed"


def _copied(matrix: Any) -> Any:
    if isinstance(matrix, np.ndarray) and matrix.dtype != object:
        return matrix.dtype.str, matrix.shape, matrix.tobytes()
    return repr(matrix)


def check_scores(scores: Any) -> None:
    assert np.isfinite(scores).all(), f"not finite: {scores}"
    assert abs(scores.gas) <= 1 + 1e-6, f"beyond a cosine: {scores}"


def score_alone_and_in_a_batch(matrix: Any, gas: Any, params: dict[str, Any]) -> None:
    given = vcs_numba.Params(**params)
    scores = vcs_numba.score_similarity(matrix, gas, given)
    check_scores(scores)
    [batch] = vcs_numba.score_batch([matrix], [gas], given)
    assert batch["vcs"] == scores.vcs, f"a batch has {batch['vcs']}, one alone {scores.vcs}"


@cases(80)
@given(matrix=matrices(), gas=GAS, params=PARAMS)
def test_one_matrix_has_the_score_that_it_has_in_a_batch(
    matrix: Any, gas: Any, params: Any
) -> None:
    check([matrix], lambda: score_alone_and_in_a_batch(matrix, gas, params))


@cases(60)
@given(
    arrays=st.lists(matrices(), min_size=1, max_size=3),
    gas=st.lists(GAS, max_size=3),
    params=PARAMS,
)
def test_a_batch_has_finite_scores_for_each_matrix(
    arrays: list[Any], gas: list[Any], params: Any
) -> None:
    def score() -> None:
        batch = vcs_numba.score_batch(arrays, gas, vcs_numba.Params(**params))
        assert len(batch) == len(arrays)
        assert np.isfinite(batch["vcs"]).all(), batch

    gas = gas if len(gas) == 3 else [0.5] * len(arrays)
    check(arrays, score)


@cases(60)
@given(matrix=matrices(), gas=GAS, params=PARAMS)
def test_alignments_and_hm_cf_take_or_refuse_anything(matrix: Any, gas: Any, params: Any) -> None:
    check([matrix], lambda: vcs_numba.align(matrix, vcs_numba.Params(**params)) and None)
    check([matrix], lambda: vcs_numba.hm_cf(matrix, gas) and None)


@cases(50)
@given(
    numbers=GENERATORS,
    counts=st.tuples(*[st.integers(1, 9)] * 2),
    size=st.sampled_from((4, 8)),
    odd=st.none() | st.tuples(st.integers(0, 3), matrices()),
    params=PARAMS,
    parts=st.dictionaries(
        st.sampled_from(("gas", "las", "vcs", "window_regularizer", "sas")), GAS, max_size=2
    ),
)
def test_embeddings_are_scored_and_recombined_or_refused(
    numbers: Any, counts: tuple[int, int], size: int, odd: Any, params: Any, parts: dict[str, Any]
) -> None:
    rows: list[Any] = [numbers.normal(size=(count, size)) for count in counts]
    rows += [numbers.normal(size=size) for _ in range(2)]
    if odd:
        rows[odd[0]] = odd[1]

    def score() -> None:
        scores = vcs_numba.score_embeddings(*rows, vcs_numba.Params(**params))
        check_scores(scores)
        vcs_numba.recombine(scores, **parts)

    check(rows, score)


_WORDS = ("stem", "vector", "chunk", "log_class", "name", "negated", "exclusion")


@cases(50)
@given(
    numbers=GENERATORS,
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    counts=st.tuples(*[st.integers(0, 29)] * 2),
    odd=st.none() | st.tuples(st.integers(0, 17), matrices()),
)
def test_words_are_compared_alone_as_in_a_batch_or_refused(
    numbers: Any, sizes: tuple[int, int, int], counts: tuple[int, int], odd: Any
) -> None:
    *chunks, types = sizes
    vectors = numbers.normal(size=(types, 4))
    drawn: dict[str, Any] = {"vectors": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}
    drawn["excluding"] = np.pad(~np.eye(3, dtype=bool), (1, 0))
    for side, count, own, other in zip(
        ("gen", "ref"), counts, chunks, reversed(chunks), strict=True
    ):
        drawn |= {
            f"{side}_{name}": numbers.integers(high, size=count)
            for name, high in (("stem", 12), ("vector", types), ("exclusion", 4))
        }
        drawn[f"{side}_chunk"] = np.sort(numbers.integers(own, size=count))
        drawn[f"{side}_log_class"] = numbers.normal(size=(count, 3))
        drawn |= {f"{side}_{name}": numbers.random(count) < 0.2 for name in ("name", "negated")}
        drawn[f"{side}_match"] = numbers.integers(other, size=own)
    if odd:
        drawn[list(drawn)[odd[0]]] = odd[1]

    def compare() -> None:
        texts = [
            vcs_numba.Words(**{name: drawn[f"{side}_{name}"] for name in _WORDS})
            for side in ("gen", "ref")
        ]
        matches = drawn["gen_match"], drawn["ref_match"]
        vocabulary = vcs_numba.Vocabulary(drawn["vectors"], drawn["excluding"])
        one = vcs_numba.substitution(*texts, *matches, vocabulary)
        shares = (one.substitution, one.thing, one.action, one.quality, one.name)
        assert all(0 <= share <= 1 for share in shares), f"not between 0 and 1: {shares}"
        [again] = vcs_numba.substitution_batch([vcs_numba.WordPair(*texts, *matches)], vocabulary)
        assert (again.substitution, again.thing, again.action, again.quality, again.name) == shares

    check(list(drawn.values()), compare)


def test_a_batch_that_scores_otherwise_is_seen(plant: Any) -> None:
    def shifted(score_batch: Any) -> Any:
        def score(*arguments: Any) -> Any:
            scores = score_batch(*arguments)
            scores["vcs"] += 1e-9
            return scores

        return score

    plant("vcs_numba.score_batch", shifted)
    with pytest.raises(AssertionError, match="a batch has"):
        score_alone_and_in_a_batch(np.full((2, 2), 0.5), 0.5, {})
