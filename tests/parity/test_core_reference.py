"""The core against the live reference package, on thousands of drawn cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytest.importorskip("vcs")
pytest.importorskip("torch")

from support.core_cases import Case, drawn_case, flat_alignment, matrix, params
from support.core_oracle import divides_by_zero, flat_reference, reference_result
from vcs_numba import REFERENCE_NAMES, Params, align, score_batch, score_similarity

TOLERANCE = 1e-12


def check(similarity: npt.NDArray[np.float64], gas: float, chosen: Params) -> None:
    """Scores, intermediate results, and the paper's answers where the reference has others."""
    theirs = reference_result(
        similarity,
        gas,
        lct=chosen.lct,
        context_cutoff=chosen.context_cutoff,
        context_window=chosen.context_window,
    )
    expected = {name: theirs[name] for name in REFERENCE_NAMES.values()}
    modes = ("reference",) if divides_by_zero(theirs) else ("reference", "paper")
    for small_text in modes:
        mode = Params(
            chosen.lct, chosen.context_cutoff, chosen.context_window, small_text=small_text
        )  # type: ignore[arg-type]
        scores = score_similarity(similarity, theirs["GAS"], mode)
        assert scores.to_reference_dict() == pytest.approx(expected, rel=0, abs=TOLERANCE)
        alignment = align(similarity, mode)
        assert alignment.scores(theirs["GAS"]) == scores
        assert tuple(score_batch([similarity], [theirs["GAS"]], mode)[0]) == scores
        ours = flat_alignment(alignment)
        reference = flat_reference(theirs)
        assert ours.keys() == reference.keys()
        for key, value in reference.items():
            np.testing.assert_allclose(ours[key], value, rtol=0, atol=TOLERANCE, err_msg=key)


# Few distinct values make ties; sixteenths are exact, hundredths are not.
VALUES = st.one_of(
    st.integers(-100, 100).map(lambda k: k / 100),
    st.integers(-16, 16).map(lambda k: k / 16),
    st.floats(-1, 1),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.6, 0.4, 5e-324, 1e-17, -1e-300]),
)
SHAPES = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 3)),
)
CUTOFFS = st.one_of(st.just(0.6), st.floats(0, 1))
WINDOWS = st.one_of(st.just(4.0), st.floats(0.05, 50))
LCTS = st.one_of(st.sampled_from([0, 0.1, 0.5, 1, 2]), st.floats(0, 3))


@given(hnp.arrays(np.float64, SHAPES, elements=VALUES), st.floats(-1, 1), LCTS, CUTOFFS, WINDOWS)
@settings(max_examples=2500)
def test_drawn_matrices(
    similarity: npt.NDArray[np.float64], gas: float, lct: float, cutoff: float, window: float
) -> None:
    check(similarity, gas, Params(lct, cutoff, window))


@given(st.integers(10**6, 10**8).map(drawn_case))
@settings(max_examples=2500)
def test_drawn_stories(case: Case) -> None:
    check(matrix(case), case.gas, params(case))


@pytest.mark.parametrize("lct", [0, 0.1, 0.5, 1, 2])
def test_every_small_grid(lct: float) -> None:
    for n_ref in range(1, 13):
        for n_gen in range(1, 13):
            case = drawn_case(100 * n_ref + n_gen)._replace(n_ref=n_ref, n_gen=n_gen, lct=lct)
            check(matrix(case), case.gas, params(case))


@pytest.mark.parametrize(
    ("n_ref", "n_gen"), [(122, 14), (14, 122), (1, 150), (150, 1), (300, 260), (199, 200)]
)
@pytest.mark.parametrize("style", [0, 1, 5])
def test_larger_grids(n_ref: int, n_gen: int, style: int) -> None:
    # Sums of more than 128 values are halved; both packages have to halve alike.
    case = drawn_case(n_ref)._replace(n_ref=n_ref, n_gen=n_gen, style=style, lct=0.5)
    check(matrix(case), case.gas, params(case))


def test_the_refused_is_what_the_reference_would_score_as_nan() -> None:
    similarity: Any = np.array([[np.nan, 0.2], [0.3, 0.4], [0.1, 0.2]])
    with pytest.raises(ValueError, match="similarity"):
        score_similarity(similarity, 0.5)
