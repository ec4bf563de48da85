"""The bootstrap interval of a mean: by plain loops, and the same beside other columns."""

from __future__ import annotations

import numpy as np

from vcs_runtime.jobs.bootstrap import RESAMPLES, SEED, mean_interval

VALUES = np.random.default_rng(3).random((4, 40))


def test_the_interval_is_the_one_of_plain_loops() -> None:
    draw = np.random.default_rng(SEED)
    means = []
    for _ in range(RESAMPLES):
        chosen = draw.integers(40, size=40)
        means.append(sum(VALUES[0][i] for i in chosen) / 40)
    assert mean_interval(VALUES[0]).tolist() == [
        np.percentile(means, 2.5),
        np.percentile(means, 97.5),
    ]


def test_a_column_has_the_same_digits_alone_and_beside_others() -> None:
    together = mean_interval(VALUES)
    for i, column in enumerate(VALUES):
        assert mean_interval(column).tolist() == together[:, i].tolist()


def test_another_seed_draws_others_and_a_single_value_has_no_interval() -> None:
    assert mean_interval(VALUES[0]).tolist() != mean_interval(VALUES[0], seed=1).tolist()
    assert np.isnan(mean_interval(np.array([0.25]))).all()
