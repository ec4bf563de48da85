"""Similarities and tolerances one step of their type beside a boundary, in float32 and float64."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.core_cases import drawn_case, matrix
from vcs_numba import Params, align, hm_cf, score_similarity

BESIDE = (-1, 0, 1)
DTYPES = (np.float32, np.float64)
sizes = st.integers(1, 12)
seeds = st.integers(0, 10**6)


def step(value: Any, direction: int) -> Any:
    """The neighbour of a number in its own type, or the number itself."""
    return (
        np.nextafter(value, np.asarray(direction * math.inf, value.dtype)) if direction else value
    )


def level_of(top: float, params: Params) -> float:
    """The least similarity of a candidate: section 4, word for word."""
    spare = (1 - params.context_cutoff) - (1 - top)
    band = spare / top / params.context_window if top > 0 and spare > 0 else 0.0
    return top - band


def beside_the_level(draw: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Any:
    """Rows and columns with one largest similarity, and others just beside what it lets in."""
    top = dtype(draw.choice([0.6, 0.6 + 2**-24, 0.75, 0.9, 1.0, draw.random()]))
    values = [step(dtype(0.6), beside) for beside in BESIDE]
    for largest in (top, step(top, -1), step(top, 1)):
        level = dtype(level_of(float(largest), Params()))
        values += [largest, *(step(level, beside) for beside in BESIDE)]
    return draw.choice(np.array(values, dtype), shape)


@given(seeds, sizes, sizes, st.sampled_from(DTYPES))
@settings(max_examples=400)
def test_matches_beside_the_level_of_candidates_follow_the_rule(
    seed: int, n_ref: int, n_gen: int, dtype: Any
) -> None:
    similarity = beside_the_level(np.random.default_rng(seed), (n_ref, n_gen), dtype)
    alignment = align(similarity)
    for side, lines in ((alignment.precision, similarity.T), (alignment.recall, similarity)):
        for line, start, end, match in zip(
            lines.astype(np.float64), side.window_start, side.window_end, side.match, strict=True
        ):
            level = level_of(line.max(), alignment.params)
            candidates = [k for k in range(len(line)) if line[k] >= level]
            expected = min(
                candidates, key=lambda k: (max(start - k, k - (end - 1), 0), -line[k], k)
            )
            assert match == expected
    assert score_similarity(similarity, 0.9) == alignment.scores(0.9)
    assert score_similarity(similarity.astype(np.float64), 0.9) == alignment.scores(0.9)


def height(y: int, x: int) -> int:
    """Section 6, word for word, by whole numbers."""
    slightly_above = y > x and 0 < Fraction(y, x) % 1 <= Fraction(1, 2)
    return -(-y // x) - slightly_above


@given(seeds, sizes, sizes, st.integers(1, 40), st.integers(1, 12), st.sampled_from(BESIDE))
@settings(max_examples=400)
def test_offsets_and_rises_beside_the_tolerance_follow_the_rule(
    seed: int, n_ref: int, n_gen: int, part: int, whole: int, beside: int
) -> None:
    lct = float(step(np.float64(part / whole), beside))
    case = drawn_case(seed)._replace(n_ref=n_ref, n_gen=n_gen)
    alignment = align(matrix(case), Params(lct=lct))
    for side in (alignment.precision, alignment.recall):
        tolerance = lct * height(side.y, side.x)
        penalties = [0.0 if d <= tolerance else d / side.y for d in side.distance.tolist()]
        assert side.penalty.tolist() == penalties
        ceiling = -(-side.y // side.x)
        limit = ceiling
        if side.y > side.x:
            limit = 2 * ceiling - (2 if height(side.y, side.x) < ceiling else 1)
        for rise, method in zip(np.abs(side.segment_dy).tolist(), side.segment_method, strict=True):
            expected = "none"
            if rise <= limit:
                expected = "standard"
            elif rise <= limit + height(side.y, side.x) * lct:
                expected = "lct_capped"
            assert method == expected


@given(seeds, sizes, sizes, st.sampled_from(DTYPES))
def test_hm_cf_of_neighbouring_numbers_is_the_exact_one(
    seed: int, n_ref: int, n_gen: int, dtype: Any
) -> None:
    draw = np.random.default_rng(seed)
    near = [step(dtype(value), beside) for value in (0.0, 0.5, 1.0) for beside in BESIDE]
    similarity = draw.choice(np.array(near, dtype), (n_ref, n_gen))
    coarse = float(draw.choice(near))
    exact = [[Fraction(float(value)) for value in row] for row in similarity]
    precision = sum(max(column) for column in zip(*exact, strict=True)) / Fraction(n_gen)
    recall = sum(max(row) for row in exact) / Fraction(n_ref)
    f1 = harmonic(precision, recall)
    scores = hm_cf(similarity, coarse)
    expected = [float(each) for each in (precision, recall, f1, harmonic(Fraction(coarse), f1))]
    assert list(scores[1:]) == pytest.approx(expected, rel=1e-14, abs=1e-300)


def harmonic(one: Fraction, other: Fraction) -> Fraction:
    return 2 * one * other / (one + other) if min(one, other) > 0 else Fraction(0)


@pytest.mark.parametrize("gas", [1.0, np.nextafter(1.0, 2.0), 1.0 + 1e-7, 1.0009])
@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-300, 2.0**-53])
def test_a_gas_above_one_by_rounding_gives_finite_scores(tiny: float, gas: float) -> None:
    similarity: npt.NDArray[np.float64] = np.array([[tiny, -1.0]])
    for one in (similarity, similarity.T, np.full((3, 2), tiny)):
        scores = score_similarity(one, gas)
        assert all(map(math.isfinite, scores.to_dict().values())), scores
        assert scores.vcs <= 1
