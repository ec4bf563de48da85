"""What must hold of every score, without an oracle."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcs_numba
from support.core_cases import drawn_case, matrix, noise, params
from vcs_numba import Params, Scores, align, score_batch, score_embeddings, score_similarity
from vcs_numba import scores as scores_module
from vcs_numba.jit.kernel import numba_config
from vcs_numba.kernels.sums import pairwise_sum

cases = st.integers(0, 10**6).map(drawn_case)
PAIRS = [name for name in Scores._fields if name.endswith("_precision")]


def swapped(scores: Scores) -> Scores:
    values = scores.to_dict()
    for name in PAIRS:
        other = name.replace("_precision", "_recall")
        values[name], values[other] = values[other], values[name]
    return Scores(**values)


def expected_match(values: npt.NDArray[np.float64], start: int, end: int, given: Params) -> int:
    """Section 4, word for word."""
    top = values.max()
    spare = (1 - given.context_cutoff) - (1 - top)
    band = spare / top / given.context_window if top > 0 and spare > 0 else 0.0
    candidates = [k for k in range(len(values)) if values[k] >= top - band]
    return min(candidates, key=lambda k: (max(start - k, k - (end - 1), 0), -values[k], k))


def test_the_drafts_example_of_a_repeated_event() -> None:
    # Chunks 1 and 9 tell alike: .78 in their own place, .80 in the other one's.
    similarity = np.full((9, 9), 0.3) + 0.5 * np.eye(9)
    similarity[0, 0] = similarity[8, 8] = 0.78
    similarity[8, 0] = similarity[0, 8] = 0.80
    for side in (align(similarity).precision, align(similarity).recall):
        assert side.match.tolist() == list(range(9))
    by_similarity_alone = align(similarity, Params(context_cutoff=0.8))
    assert by_similarity_alone.precision.match[[0, 8]].tolist() == [8, 0]


@given(cases)
@settings(max_examples=300)
def test_transposing_swaps_precision_and_recall(case: Any) -> None:
    similarity = matrix(case)
    given_params = params(case, small_text="paper")
    direct = score_similarity(similarity, case.gas, given_params)
    assert score_similarity(similarity.T.copy(), case.gas, given_params) == swapped(direct)


@given(cases)
@settings(max_examples=300)
def test_memory_layout_does_not_matter(case: Any) -> None:
    similarity = matrix(case)
    expected = score_similarity(similarity, case.gas)
    padded = np.zeros((2 * case.n_ref, 3 * case.n_gen))
    padded[::2, ::3] = similarity
    frozen = similarity.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"x" + similarity.tobytes(), dtype=np.float64, offset=1).reshape(
        similarity.shape
    )
    views = {
        "column order": np.asfortranarray(similarity),
        "strided": padded[::2, ::3],
        "reversed": similarity[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": frozen,
        "read-only column order": frozen.T.copy().T,
        "foreign byte order": similarity.astype(similarity.dtype.newbyteorder()),
        "unaligned": unaligned,
        "list": similarity.tolist(),
    }
    for name, view in views.items():
        assert score_similarity(view, case.gas) == expected, name
    assert [tuple(one) for one in score_batch(list(views.values()), [case.gas] * len(views))] == [
        expected
    ] * len(views)


@given(cases)
@settings(max_examples=200)
def test_float32_scores_as_the_same_values_in_float64(case: Any) -> None:
    narrow = matrix(case).astype(np.float32)
    wide = narrow.astype(np.float64)
    assert score_similarity(narrow, case.gas) == score_similarity(wide, case.gas)
    assert score_similarity(narrow.T, case.gas) == score_similarity(wide.T, case.gas)
    assert align(narrow).scores(case.gas) == score_similarity(wide, case.gas)


@given(cases)
@settings(max_examples=300)
def test_matches_follow_the_rule_word_for_word(case: Any) -> None:
    similarity = matrix(case)
    alignment = align(similarity, params(case))
    for side, lines in ((alignment.precision, similarity.T), (alignment.recall, similarity)):
        for line, start, end, match in zip(
            lines, side.window_start, side.window_end, side.match, strict=True
        ):
            assert match == expected_match(line, int(start), int(end), alignment.params)


@pytest.mark.parametrize("shape", [(420, 260), (260, 420)])
@pytest.mark.parametrize("share", [0.1, 0.9], ids=["few columns", "most columns"])
def test_matches_far_from_their_windows_follow_the_rule_too(
    shape: tuple[int, int], share: float
) -> None:
    # Large enough that columns without a candidate nearby are searched in a way of their own: with
    # candidates at several distances, on both sides, some equally far and equally similar.
    draw = noise(99, 8 * shape[1]).reshape(8, shape[1])
    similarity = 0.3 * matrix(drawn_case(40)._replace(n_ref=shape[0], n_gen=shape[1], style=1))
    side = align(similarity).precision
    for j in np.flatnonzero(draw[0] < share):
        start, last = int(side.window_start[j]), int(side.window_end[j]) - 1
        for k, far in enumerate((60, 60, 90, 150)):
            distance = far + int(draw[k + 1, j] * 4) // 3
            for place, value in ((start - distance, draw[5, j]), (last + distance, draw[6, j])):
                if 0 <= place < shape[0]:
                    similarity[place, j] = 0.90 + int(value * 3) / 100
    for given_matrix in (similarity, similarity.astype(np.float32), np.asfortranarray(similarity)):
        alignment = align(given_matrix)
        for part, lines in (
            (alignment.precision, given_matrix.T),
            (alignment.recall, given_matrix),
        ):
            for line, start, end, match in zip(
                lines.astype(np.float64),
                part.window_start,
                part.window_end,
                part.match,
                strict=True,
            ):
                assert match == expected_match(line, int(start), int(end), alignment.params)
    assert np.array_equal(
        align(similarity).precision.match, align(np.asfortranarray(similarity)).precision.match
    )


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=150)
def test_ideal_lines_are_the_shortest_and_longest_of_all_paths(
    n_ref: int, n_gen: int, seed: int
) -> None:
    similarity = matrix(drawn_case(seed)._replace(n_ref=n_ref, n_gen=n_gen))
    alignment = align(similarity)
    for side in (alignment.precision, alignment.recall):
        windows = [range(a, b) for a, b in zip(side.window_start, side.window_end, strict=True)]
        if math.prod(map(len, windows)) > 3000:
            continue
        lengths = {
            path: math.fsum(math.hypot(1, b - a) for a, b in itertools.pairwise(path))
            for path in itertools.product(*windows)
        }
        if side.x < 2:
            assert (side.floor_length, side.ceiling_length, len(side.floor_path)) == (0, 0, 0)
            continue
        assert side.floor_length == pytest.approx(min(lengths.values()), abs=1e-12)
        assert side.ceiling_length == pytest.approx(max(lengths.values()), abs=1e-12)
        assert lengths[tuple(side.floor_path.tolist())] == pytest.approx(
            side.floor_length, abs=1e-12
        )
        assert lengths[tuple(side.ceiling_path.tolist())] == pytest.approx(
            side.ceiling_length, abs=1e-12
        )


@given(
    cases,
    st.sampled_from(["full", "excess"]),
    st.sampled_from(["window", "length"]),
    st.floats(-1, 1),
)
@settings(max_examples=300)
def test_alignment_gives_the_same_scores_bit_for_bit(
    case: Any, penalty: str, regularizer: str, blend: float
) -> None:
    similarity = matrix(case)
    chosen = params(case, lct_penalty=penalty, regularizer=regularizer, nas_blend_factor=blend)
    scores = score_similarity(similarity, case.gas, chosen)
    assert align(similarity, chosen).scores(case.gas) == scores
    assert tuple(score_batch([similarity], [case.gas], chosen)[0]) == scores
    for name in "nas nas_f1 nas_d_precision nas_d_recall nas_l_precision nas_l_recall".split():
        assert 0 <= getattr(scores, name) <= 1
    assert 0 <= scores.window_regularizer <= 1


@pytest.mark.parametrize(
    "chosen",
    [Params(), Params(lct=1.0), Params(small_text="reference"), Params(regularizer="length")],
    ids=["default", "lct", "reference", "length"],
)
def test_vcs_is_the_margin_cut_off_at_zero_and_scaled(chosen: Params) -> None:
    """Section 8: VCS > 0 exactly where the margin is, and VCS = margin / max(SAS, NAS) there."""
    draw = np.random.default_rng(0)
    count = 25_000
    shapes = draw.integers(1, 13, (count, 2)).tolist()
    # From noise to near copies, so that all branches occur.
    level = draw.uniform(0, 1, count)
    similarities = [
        np.clip(k * np.eye(*shape) + draw.uniform(-0.3, 1 - 0.5 * k, shape), -1, 1)
        for k, shape in zip(level, shapes, strict=True)
    ]
    scores = score_batch(
        similarities, np.clip(level + draw.uniform(-0.5, 0.5, count), -1, 1), chosen
    )
    positive = scores["vcs"] > 0
    assert 0.02 < positive.mean() < 0.9
    assert np.array_equal(positive, scores["margin"] > 0)
    larger = np.maximum(scores["sas"], scores["nas"])
    assert np.array_equal(
        scores["vcs"][positive], (scores["margin"] / np.maximum(larger, 1e-300))[positive]
    )
    np.testing.assert_allclose(
        scores["margin"], scores["sas"] + scores["nas"] - 1, rtol=0, atol=2.3e-16
    )
    assert scores["margin"].min() == -1
    assert scores["margin"].max() <= 1


@given(cases)
@settings(max_examples=200)
def test_without_a_context_band_only_the_order_of_similarities_counts_for_the_narrative(
    case: Any,
) -> None:
    # A cutoff of 1 leaves no band, so halving similarities moves no match; it is exact.
    similarity = matrix(case)
    chosen = params(case, context_cutoff=1.0)
    whole = score_similarity(similarity, case.gas, chosen)
    half = score_similarity(similarity / 2, case.gas, chosen)
    assert half.las_precision == whole.las_precision / 2
    assert half.las_recall == whole.las_recall / 2
    narrative = [name for name in Scores._fields if name.startswith(("nas", "window"))]
    assert [getattr(half, name) for name in narrative] == [
        getattr(whole, name) for name in narrative
    ]


@given(cases)
@settings(max_examples=200)
def test_the_penalty_is_the_whole_offset_or_its_excess_over_the_tolerance(case: Any) -> None:
    similarity = matrix(case)
    for lct_penalty in ("full", "excess"):
        chosen = params(case, lct_penalty=lct_penalty)
        alignment = align(similarity, chosen)
        for side in (alignment.precision, alignment.recall):
            tolerance = chosen.lct * side.tolerance_height
            assert np.array_equal(
                side.tolerated, (side.distance > 0) & (side.distance <= tolerance)
            )
            for offset, penalty in zip(side.distance.tolist(), side.penalty.tolist(), strict=True):
                charged = offset if lct_penalty == "full" else offset - tolerance
                assert penalty == (charged / side.y if offset > tolerance else 0.0)


def test_the_penalties_of_an_offset_beyond_the_tolerance() -> None:
    # Five chunks against five: each window is one chunk, and so is the tolerance's height.
    similarity = np.eye(5)[[1, 2, 3, 4, 0]]
    for lct_penalty, charged in (("full", 4), ("excess", 2.5)):
        side = align(similarity, Params(lct=1.5, lct_penalty=lct_penalty)).recall
        assert side.distance.tolist() == [1, 1, 1, 1, 4]
        assert side.penalty.tolist() == [0, 0, 0, 0, charged / 5]


@pytest.mark.parametrize(
    ("n_ref", "n_gen"), [(5, 9), (30, 7), (12, 12), (2, 2), (1, 3), (40, 2), (101, 99)]
)
def test_length_regularizer_blends_between_its_two_penalties(n_ref: int, n_gen: int) -> None:
    similarity = matrix(drawn_case(4)._replace(n_ref=n_ref, n_gen=n_gen))

    def regularizer(blend: float) -> float:
        chosen = Params(regularizer="length", nas_blend_factor=blend)
        return score_similarity(similarity, 0.5, chosen).window_regularizer

    imbalance = 1 - min(n_ref, n_gen) / max(n_ref, n_gen)
    coverage = align(similarity).window_area / (n_ref * n_gen)
    least = 1 / max(n_ref, n_gen)
    window = (
        min(max((coverage - least) / (0.5 - least), 0), 1)
        if least < 0.5
        else float(coverage > least)
    )
    larger, smaller = max(imbalance, window), min(imbalance, window)
    neutral = larger**2 + smaller * (1 - larger)
    certain = neutral >= 1 - 1e-12
    assert regularizer(1.0) == pytest.approx(1.0 if certain else window, abs=1e-12)
    assert regularizer(-1.0) == pytest.approx(1.0 if certain else imbalance, abs=1e-12)
    low, high = sorted((regularizer(1.0), regularizer(-1.0)))
    for blend in (-0.5, 0.0, 0.5):
        assert low - 1e-12 <= regularizer(blend) <= high + 1e-12
    assert regularizer(0.0) == pytest.approx(min(max(neutral, low), high), abs=1e-12)


@pytest.mark.parametrize(
    ("shape", "paper", "reference"),
    [
        # n_ref x n_gen, then (NAS-D, window regulariser, NAS, VCS); LAS is 0.95, GAS 0.9.
        ((1, 1), (1, 0, 1, 0.85 / 0.95), (0, 0, 0, 0)),
        ((2, 2), (1, 0, 1, 0.85 / 0.95), (1, 1, 0, 0)),
        ((1, 2), (1, 1, 0, 0), (0, 1, 0, 0)),
        ((2, 1), (1, 1, 0, 0), (0, 1, 0, 0)),
        ((1, 5), (1, 1, 0, 0), (0, 1, 0, 0)),
        ((3, 3), (1, 0, 1, 0.85 / 0.95), (1, 0, 1, 0.85 / 0.95)),
    ],
)
def test_very_short_texts(
    shape: tuple[int, int], paper: tuple[float, ...], reference: tuple[float, ...]
) -> None:
    similarity = np.full(shape, 0.1)
    np.fill_diagonal(similarity, 0.95)
    if 1 in shape:
        similarity[:] = 0.95
    for small_text, expected in (("paper", paper), ("reference", reference)):
        got = score_similarity(similarity, 0.9, Params(small_text=small_text))  # type: ignore[arg-type]
        assert (got.nas_d, got.window_regularizer, got.nas, got.vcs) == pytest.approx(
            expected, abs=1e-12
        )


def test_window_products_are_not_repaired() -> None:
    assert align(np.full((122, 14), 0.5)).precision.window_start[7] == 60


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(700, 500), (300, 1500), (1500, 300), (30, 9000)])
def test_number_of_threads_does_not_matter(
    shape: tuple[int, int], dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = drawn_case(12)._replace(n_ref=shape[0], n_gen=shape[1], style=5)
    similarity = matrix(case).astype(dtype)
    results = set()
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(numba_config, "NUMBA_NUM_THREADS", threads)
        results.add(score_similarity(similarity, 0.7, Params(lct=0.5)))
        results.add(swapped(score_similarity(similarity.T, 0.7, Params(lct=0.5))))
    monkeypatch.setattr(scores_module, "LARGE", 10**9)  # the kernel for small matrices
    results.add(score_similarity(similarity, 0.7, Params(lct=0.5)))
    assert len(results) == 1


def test_batches_of_any_make_up_equal_single_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(400)
    matrices: list[Any] = [matrix(drawn_case(seed)) for seed in seeds]
    matrices[3] = matrices[3].astype(np.float32)
    matrices[7] = matrices[7].T
    matrices[150] = matrix(drawn_case(5)._replace(n_ref=300, n_gen=260))
    matrices[151] = matrix(drawn_case(5)._replace(n_ref=700, n_gen=600)).T
    gas = [drawn_case(seed).gas for seed in seeds]
    expected = [score_similarity(one, g) for one, g in zip(matrices, gas, strict=True)]
    for threads in (1, 2, 5):
        monkeypatch.setattr(numba_config, "NUMBA_NUM_THREADS", threads)
        batch = score_batch(matrices, gas)
        assert batch.dtype == vcs_numba.SCORE_DTYPE
        assert [tuple(one) for one in batch] == expected
    cube = np.stack([matrix(drawn_case(seed)._replace(n_ref=9, n_gen=8)) for seed in seeds])
    assert [tuple(one) for one in score_batch(cube, gas)] == [
        score_similarity(one, g) for one, g in zip(cube, gas, strict=True)
    ]
    assert score_batch([], []).shape == (0,)
    assert tuple(score_batch(iter(matrices[:1]), gas[:1])[0]) == expected[0]


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12), st.integers(1, 40))
@settings(max_examples=100)
def test_embeddings_are_normalised_and_independent_of_each_other(
    seed: int, n_ref: int, n_gen: int, size: int
) -> None:
    draw = np.random.default_rng(seed)
    ref, gen = draw.standard_normal((n_ref, size)), draw.standard_normal((n_gen, size))
    texts = draw.standard_normal((2, size))
    scores = score_embeddings(ref, gen, texts[0], texts[1])
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (ref, gen, texts)]
    assert scores.gas == pytest.approx(float(unit[2][0] @ unit[2][1]), abs=1e-6)
    lengths = 2.0 ** draw.integers(-30, 30, (n_ref, 1))
    assert score_embeddings(ref * lengths, gen * 8, texts[0] * 0.25, texts[1]) == scores
    assert swapped(score_embeddings(gen, ref, texts[1], texts[0])) == scores
    whole = vcs_numba.embeddings.cosine_similarity(
        *(vcs_numba.embeddings.unit_rows(rows, "rows") for rows in (ref, gen))
    )
    np.testing.assert_allclose(whole, unit[0] @ unit[1].T, atol=1e-6)
    left, right = (vcs_numba.embeddings.unit_rows(rows[-1:], "rows") for rows in (ref, gen))
    assert vcs_numba.embeddings.cosine_similarity(left, right)[0, 0] == whole[-1, -1]
    assert whole[-1, -1] == np.add.accumulate(left[0].astype(np.float64) * right[0])[-1], (
        "summed in order"
    )


def test_scores_carry_names_in_the_order_of_the_specification() -> None:
    expected = (
        "vcs, gas, las, las_precision, las_recall, sas, nas, nas_f1, nas_d, nas_d_precision,"
        " nas_d_recall, nas_l, nas_l_precision, nas_l_recall, window_regularizer, margin"
    ).split(", ")
    scores = score_similarity([[0.9, 0.2], [0.1, 0.8]], 0.9)
    assert list(Scores._fields) == expected == list(vcs_numba.SCORE_DTYPE.names or ())
    assert scores.to_dict() == dict(zip(expected, scores, strict=True))
    assert scores.to_reference_dict()["GAS-LAS-Scaled"] == scores.sas
    assert list(scores.to_reference_dict()) == list(vcs_numba.REFERENCE_NAMES.values())
    assert all(type(value) is float for value in scores)


def test_sums_round_as_numpy_rounds_them() -> None:
    # Before NumPy 2.3, `sum` added more values than these in blocks of so many.
    block = 8192
    counts = [*range(1, 600), 1000, 4097, block, 9001]
    if tuple(map(int, np.__version__.split(".")[:2])) < (2, 3):
        counts.remove(9001)
    for count in counts:
        values = np.stack([noise(count, count) - 0.5, noise(count + 1, count) * 1e9])
        assert pairwise_sum(values, 0, count) == values[0].sum()
        assert pairwise_sum(values, 1, count) == values[1].sum()
