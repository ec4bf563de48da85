"""Windows by time: order is judged on the clock (docs/reference/vcs.md, section 16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcs_numba import Params, align

Times = npt.NDArray[np.float64]
GAS = 0.9


def drawn(seed: int) -> tuple[npt.NDArray[np.float64], tuple[Times, Times], Params]:
    draw = np.random.default_rng(seed)
    times = []
    for count in draw.integers(1, 9, 2):
        starts = np.sort(draw.integers(0, 40, count)).astype(float)
        times.append(np.stack([starts, starts + draw.integers(1, 12, count)], axis=1))
    lct = float(draw.choice([0.0, 0.5, 1.0]))
    return (
        draw.uniform(-0.1, 1.0, (len(times[0]), len(times[1]))),
        (times[0], times[1]),
        Params(lct=lct),
    )


cases = st.integers(0, 10**6).map(drawn)


def expected_window(own: Times, other: Times) -> tuple[int, int]:
    """Section 16, word for word."""
    overlapping = [j for j, (start, end) in enumerate(other) if start < own[1] and own[0] < end]
    if overlapping:
        return overlapping[0], overlapping[-1] + 1
    gaps = [max(own[0] - end, start - own[1]) for start, end in other]
    return int(np.argmin(gaps)), int(np.argmin(gaps)) + 1


@given(cases)
@settings(max_examples=300)
def test_windows_hold_what_overlaps_in_time_or_is_nearest(case: Any) -> None:
    similarity, times, params = case
    found = align(similarity, params, times)
    for side, own, other in ((found.recall, *times), (found.precision, *reversed(times))):
        windows = list(zip(side.window_start.tolist(), side.window_end.tolist(), strict=True))
        assert windows == [expected_window(one, other) for one in own]


@given(cases, st.floats(0.5, 20.0), st.floats(0.0, 1000.0))
def test_neither_the_zero_nor_the_unit_of_the_clock_matters(
    case: Any, unit: float, zero: float
) -> None:
    similarity, times, params = case
    # Powers of two and whole seconds, so that no rounding joins or parts two segments.
    other = tuple(own * 2.0 ** round(unit) + round(zero) for own in times)
    assert align(similarity, params, other).scores(GAS) == align(similarity, params, times).scores(
        GAS
    )


@given(cases)
def test_swapping_texts_and_times_swaps_precision_and_recall(case: Any) -> None:
    similarity, (ref, gen), params = case
    one = align(similarity, params, (ref, gen))
    other = align(similarity.T.copy(), params, (gen, ref))
    assert (one.precision.nas_d, one.recall.nas_l) == (other.recall.nas_d, other.precision.nas_l)
    assert one.precision.window_start.tolist() == other.recall.window_start.tolist()


@given(cases)
def test_matches_at_their_times_lose_nothing(case: Any) -> None:
    similarity, times, _ = case
    # All equal: each match lies in its window.
    found = align(np.full(similarity.shape, 0.9), times=times)
    for side in (found.precision, found.recall):
        assert side.in_window.all()
        assert side.nas_l == 1.0 if side.x > 1 else True
        assert side.nas_d == 1.0 or side.max_penalty == 0.0


@given(st.integers(1, 12), st.integers(0, 10**6))
def test_equal_segments_one_after_the_other_score_as_positions_do(count: int, seed: int) -> None:
    similarity = np.random.default_rng(seed).uniform(-0.1, 1.0, (count, count))
    times = np.stack([np.arange(count), np.arange(count) + 1], axis=1)
    for lct in (0.0, 1.0):
        by_time = align(similarity, Params(lct=lct), (times, times)).scores(GAS)
        assert by_time.nas_d == align(similarity, Params(lct=lct)).scores(GAS).nas_d
    assert align(similarity, times=(times, times)).scores(GAS) == align(similarity).scores(GAS)


def test_a_text_about_the_second_half_is_at_its_place_by_time_alone() -> None:
    times = np.stack([np.arange(0, 80, 10), np.arange(10, 90, 10)], axis=1)
    similarity = np.full((8, 4), 0.2)
    similarity[np.arange(4, 8), np.arange(4)] = 0.95
    right = align(similarity, times=(times, times[4:]))
    assert right.precision.penalty.tolist() == [0.0] * 4
    assert right.nas > align(similarity).nas > align(similarity, times=(times, times[:4])).nas


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([[0, 1]], r"^times must be two arrays: of the reference and of the generated text$"),
        (([[0, 1]], [[0, 1]]), r"^times\[0\] must have the shape \(2, 2\), not \(1, 2\)$"),
        (([[0, 1], [2, 2]], [[0, 1]]), r"^times\[0\]: segment 1 does not end after it starts$"),
        (([[2, 3], [0, 1]], [[0, 1]]), r"segment 1 starts before the previous segment$"),
        (([[0, 1], [1, 2]], [[0, np.nan]]), r"^times\[1\]: holds NaN or infinity$"),
    ],
)
def test_times_that_cannot_be_are_refused(times: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        align([[0.5], [0.5]], times=times)
