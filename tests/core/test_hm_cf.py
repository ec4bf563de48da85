"""`hm_cf`: best matches without windows, against plain NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from support import clip_cc
from support.plain_python import printed_with_and_without_numba
from vcs_numba import HmCf, hm_cf
from vcs_numba.jit.kernel import numba_config


def unit(draw: np.random.Generator, *shape: int) -> npt.NDArray[np.float64]:
    vectors = draw.standard_normal(shape) + 0.6  # some cosines are negative, most are not
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize("seed", range(60))
def test_numbers_are_those_of_the_definition(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n_ref, n_gen = (int(n) for n in draw.integers(1, 300 if seed < 5 else 25, 2))
    reference, generated, whole = unit(draw, n_ref, 12), unit(draw, n_gen, 12), unit(draw, 2, 12)
    scores = hm_cf(reference @ generated.T, float(whole[0] @ whole[1]))
    assert scores._asdict() == pytest.approx(
        clip_cc.hm_cf(reference, generated, *whole), rel=0, abs=1e-12
    )


@pytest.mark.parametrize(
    ("similarity", "coarse", "f1", "expected"),
    [
        ([[0.5]], -0.5, 0.5, 0.0),  # a negative cosine of the whole texts
        ([[0.5]], -0.2, 0.5, 0.0),  # a smaller one
        ([[-0.5]], 0.5, 0.0, 0.0),  # nothing is found
        ([[0.9], [-0.95]], 0.5, 0.0, 0.0),  # the recall alone is negative
        ([[0.4, -0.9], [-0.3, -0.7]], 0.5, 0.0, 0.0),  # precision and recall differ in sign
        ([[0.0]], 0.0, 0.0, 0.0),
        ([[1.0]], 1.0, 1.0, 1.0),
    ],
)
def test_a_part_that_is_not_positive_leaves_nothing(
    similarity: list[list[float]], coarse: float, f1: float, expected: float
) -> None:
    scores = hm_cf(similarity, coarse)
    assert (scores.fine_f1, scores.hm_cf, scores.coarse) == (f1, expected, coarse)


def test_the_order_of_sentences_and_the_layout_of_the_matrix_change_nothing() -> None:
    draw = np.random.default_rng(3)
    similarity = draw.uniform(-0.2, 1, (7, 7))
    scores = hm_cf(similarity, 0.7)
    assert hm_cf(np.asfortranarray(similarity), 0.7) == scores
    assert hm_cf(np.repeat(similarity, 2, axis=1)[:, ::2], 0.7) == scores
    assert hm_cf(similarity[::-1, draw.permutation(7)], 0.7) == pytest.approx(scores, abs=1e-15)
    turned = hm_cf(similarity.T, 0.7)
    assert turned.fine_precision == scores.fine_recall
    assert turned.fine_recall == scores.fine_precision
    narrow = similarity.astype(np.float32)
    assert hm_cf(narrow, 0.7) == hm_cf(narrow.astype(np.float64), 0.7)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="^coarse must be a cosine, between -1 and 1"):
        hm_cf([[0.5]], 40.0)


@pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="is the inner run")
def test_plain_python_gives_the_same_bits() -> None:
    script = (
        "import numpy as np, vcs_numba; draw = np.random.default_rng(1)\n"
        "print([float(x).hex() for n in (3, 40, 300)"
        " for x in vcs_numba.hm_cf(draw.uniform(-.2, 1, (n, 2 * n)), .5)])"
    )
    compiled, plain = printed_with_and_without_numba(script)
    assert compiled == plain != ""


def test_fields_have_the_names_of_files() -> None:
    assert HmCf._fields == ("coarse", "fine_precision", "fine_recall", "fine_f1", "hm_cf")
    assert all(type(value) is float for value in hm_cf([[0.5, 0.25]], 0.5))
