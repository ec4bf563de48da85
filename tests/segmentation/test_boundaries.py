"""From logits to segments: windows, merging, probabilities, cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vcs_runtime.segmentation.boundary_model import (
    Overlap,
    character_probabilities,
    cut,
    sigmoid,
    window_starts,
)


@given(st.integers(0, 400), st.integers(1, 60), st.integers(1, 60))
def test_windows_hold_every_token_and_end_with_the_text(
    tokens: int, size: int, stride: int
) -> None:
    stride = min(stride, size)
    starts = list(window_starts(tokens, size, stride))
    held = {token for start in starts for token in range(start, min(start + size, tokens))}
    assert held == set(range(tokens))
    assert starts == sorted(set(starts))
    if tokens:
        assert starts[-1] == max(0, tokens - size)
        assert all(start % stride == 0 for start in starts[:-1])
        # None but the last reaches the end.
        assert all(start + size < tokens for start in starts[:-1])


def test_a_window_starts_every_stride_until_the_last() -> None:
    assert list(window_starts(10, 4, 3)) == [0, 3, 6]
    assert list(window_starts(11, 4, 3)) == [0, 3, 6, 7]
    assert list(window_starts(4, 4, 1)) == [0]
    assert list(window_starts(0, 4, 1)) == []


def test_overlapping_logits_are_averaged_in_half_precision() -> None:
    overlap = Overlap(3)
    overlap.add(0, np.array([1.0, 2048.0], np.float32))
    overlap.add(1, np.array([1.0, -7.0], np.float32))
    mean = overlap.mean()
    assert mean.dtype == np.float16
    assert mean.tolist() == [1.0, 1024.0, -7.0]  # 2049 is no half-precision number: the sum is 2048


def test_a_float32_logit_is_rounded_with_the_sum_and_not_before() -> None:
    small = np.float32(2**-12)  # half a step of half precision at 1, and a little more
    overlap = Overlap(1)
    overlap.add(0, np.array([0.5 + small], np.float32))
    overlap.add(0, np.array([0.5 + small + 2**-13], np.float32))
    first = np.float16(np.float32(0.5) + small)
    expected = np.float16(np.float32(first) + np.float32(0.5 + small + 2**-13)) / np.float16(2)
    assert overlap.mean()[0] == expected


def test_sigmoid_is_float32_and_bears_every_logit() -> None:
    values = sigmoid(np.array([-65504, -100, 0, 100, 65504], np.float16))
    assert values.dtype == np.float32
    assert values.tolist() == [0, pytest.approx(0, abs=1e-30), 0.5, 1, 1]


def test_a_probability_stands_at_its_character_and_the_last_token_wins() -> None:
    places = np.array([0, 3, 3, -1, 4])
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32)
    result = character_probabilities(6, places, values)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.float32([0.1, 0, 0, 0.3, 0.5, 0]))


@pytest.mark.parametrize(
    ("text", "ends", "segments"),
    [
        ("ab cd", [1], ["ab ", "cd"]),
        ("ab  \t cd", [1], ["ab  \t ", "cd"]),
        ("ab cd", [1, 2], ["ab ", "cd"]),
        ("ab", [0, 1], ["a", "b"]),
        ("abc", [], ["abc"]),
        ("", [], []),
        (" ", [], [" "]),
        ("ab\ncd", [], ["ab", "cd"]),
        ("ab\ncd", [1], ["ab", "cd"]),
        ("ab\n\ncd", [1], ["ab", "", "cd"]),
        ("ab \n cd", [1], ["ab ", " ", "cd"]),
        ("ab\n", [], ["ab", ""]),
        ("ab\n", [1], ["ab", ""]),
        ("\n", [], ["", ""]),
        ("a\r\nb\u2028c", [], ["a\r", "b\u2028c"]),
    ],
)
def test_cuts_after_characters_and_at_newlines(
    text: str, ends: list[int], segments: list[str]
) -> None:
    assert cut(text, ends) == segments


@given(st.text(st.sampled_from("ab \n\t")), st.data())
@example("\n a", None)
def test_only_newlines_are_lost(text: str, data: st.DataObject | None) -> None:
    indices = st.lists(st.integers(0, max(0, len(text) - 1)), unique=True).map(sorted)
    ends = data.draw(indices) if text and data else []
    segments = cut(text, ends)
    assert "".join(segments) == text.replace("\n", "")
    assert not any("\n" in segment for segment in segments)
    assert "\n".join(cut(text, [])) == text
