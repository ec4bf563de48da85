"""`recombine`: the scores that would result from other parts."""

from __future__ import annotations

import numpy as np
import pytest

from vcs_numba import recombine, score_similarity


@pytest.mark.parametrize("seed", range(20))
def test_without_changes_the_scores_are_the_same_bit_for_bit(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = draw.integers(1, 12, 2)
    scores = score_similarity(draw.uniform(-0.2, 1, shape), float(draw.uniform(0.2, 1)))
    assert recombine(scores) == scores


def test_dependent_scores_are_recomputed_and_the_others_stay() -> None:
    scores = score_similarity(np.array([[0.9, 0.1, 0.2], [0.2, 0.8, 0.1], [0.1, 0.3, 0.7]]), 0.8)
    changed = recombine(scores, las_precision=1.0, las_recall=1.0)
    assert changed.las == 1.0
    assert changed.sas == scores.gas
    assert changed.margin == pytest.approx(changed.sas + changed.nas - 1, rel=0, abs=1e-15)
    assert changed.margin != scores.margin
    assert (changed.nas, changed.nas_d, changed.nas_l) == (scores.nas, scores.nas_d, scores.nas_l)


def test_unknown_parts_and_values_that_are_not_finite_are_refused() -> None:
    scores = score_similarity(np.eye(3), 1.0)
    with pytest.raises(ValueError, match="there is no part"):
        recombine(scores, vcs=1.0)
    with pytest.raises(ValueError, match="nas_d_recall must be a finite number"):
        recombine(scores, nas_d_recall=float("nan"))
    with pytest.raises(ValueError, match="gas"):
        recombine(scores, gas=2.0)
