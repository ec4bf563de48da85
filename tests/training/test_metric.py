"""`TextMetric`: means, merging, asynchronous evaluation."""

from __future__ import annotations

import copy
import math
import pickle
import threading

import pytest

from support.stories import story
from vcs_numba import Params, Scores
from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.training import TextMetric

PREDS = [story(i) for i in range(20, 32)]
TARGETS = [story(i // 2) for i in range(12)]


@pytest.fixture
def metric(config: ScorerConfig) -> TextMetric:
    return TextMetric(config)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_means_are_those_of_the_scores(
    config: ScorerConfig, scorer: Scorer, asynchronous: bool
) -> None:
    metric = TextMetric(config, asynchronous=asynchronous)
    for start in range(0, 12, 5):
        metric.update(PREDS[start : start + 5], TARGETS[start : start + 5])
    metric.update("", TARGETS[0])
    results = scorer.score_many(list(zip(TARGETS, PREDS, strict=True)))
    means = metric.compute()
    for name in Scores._fields:
        values = [getattr(result.scores, name) for result in results]
        assert math.isclose(means[name], math.fsum(values) / 12, rel_tol=1e-15, abs_tol=1e-300)
    assert (means["count"], means["unscorable"]) == (12, 1)
    assert metric.signature == results[0].signature


def test_zeros_and_pairs_that_cannot_be_judged_are_counted(
    config: ScorerConfig, metric: TextMetric
) -> None:
    # Two chunks against three are 0 by definition; one against one has no order.
    metric.update([story(1, 2), story(2, 1), story(3, 6)], [story(4, 3), story(2, 1), story(3, 6)])
    means = metric.compute()
    assert (means["zeros"], means["not_judged"], means["count"]) == (1, 2, 3)
    other = TextMetric(config)
    other.merge_state([metric, metric.state()])
    assert (other.compute()["zeros"], other.compute()["not_judged"]) == (2, 4)


def test_references_come_second_and_may_be_several(metric: TextMetric, scorer: Scorer) -> None:
    metric.update([PREDS[0], PREDS[1]], [TARGETS[0], [TARGETS[3], TARGETS[5]]])
    expected = (
        scorer.score(TARGETS[0], PREDS[0]).vcs
        + scorer.score([TARGETS[3], TARGETS[5]], PREDS[1]).vcs
    )
    assert metric.compute()["vcs"] == expected / 2
    asymmetric = scorer.score(TARGETS[0], PREDS[0]).scores
    metric.reset()
    metric.update(PREDS[0], [TARGETS[0]])
    assert asymmetric is not None
    assert metric.compute()["las_recall"] == asymmetric.las_recall != asymmetric.las_precision


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 16])
def test_a_mean_over_ranks_is_the_same_to_the_last_bit_however_pairs_are_shared_out(
    config: ScorerConfig, metric: TextMetric, ranks: int
) -> None:
    metric.update(PREDS, TARGETS)
    states = []
    for rank in range(ranks):  # of sixteen, four have nothing
        mine = TextMetric(config)
        mine.update(PREDS[rank::ranks], TARGETS[rank::ranks])
        states.append(pickle.loads(pickle.dumps(mine.state())))
    merged = TextMetric(config).merge_state(reversed(states))
    assert merged.compute() == metric.compute()
    assert merged.signature == metric.signature


def test_metrics_and_states_can_be_merged_one_or_many(
    config: ScorerConfig, metric: TextMetric
) -> None:
    metric.update(PREDS[:2], TARGETS[:2])
    other = TextMetric(config)
    other.update([*PREDS[2:4], "..."], TARGETS[2:5])
    metric.merge_state(other).merge_state(other.state()).merge_state([other, other.state()])
    assert (metric.compute()["count"], metric.compute()["unscorable"]) == (10, 4)
    assert other.compute()["count"] == 2


def test_scores_that_cannot_be_compared_are_not_merged(
    config: ScorerConfig, metric: TextMetric
) -> None:
    metric.update(PREDS[:2], TARGETS[:2])
    before = metric.compute()
    other = TextMetric(config, params=Params(lct=1.0))
    other.update(PREDS[:2], TARGETS[:2])
    with pytest.raises(ValueError, match="different signatures.*lct:0.*lct:1"):
        metric.merge_state([metric.state(), other])
    assert metric.compute() == before


def test_nothing_scored_has_no_mean(metric: TextMetric) -> None:
    metric.update([], [])
    metric.update(["", "..."], TARGETS[:2])
    means = metric.compute()
    assert math.isnan(means["vcs"])
    assert (means["count"], means["unscorable"], metric.signature) == (0, 2, "")


def test_reset_forgets_what_is_still_being_scored(config: ScorerConfig) -> None:
    metric = TextMetric(config, asynchronous=True)
    metric.update(PREDS, TARGETS)
    metric.reset()
    metric.update(PREDS[:1], TARGETS[:1])
    assert metric.compute()["count"] == 1


@pytest.mark.parametrize(
    ("preds", "target"), [(["a."], "a."), (["a."], ["a.", "b."]), ([], ["a."])]
)
def test_lengths_that_differ_are_refused(
    metric: TextMetric, preds: list[str], target: list[str]
) -> None:
    with pytest.raises(ValueError, match="target must have a reference for each of"):
        metric.update(preds, target)
    assert metric.compute()["count"] == 0


def test_copies_and_pickles_hold_what_was_seen(config: ScorerConfig) -> None:
    metric = TextMetric(config, asynchronous=True)
    metric.update(PREDS, TARGETS)
    for twin in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        assert twin.compute() == metric.compute()
        twin.update(PREDS[0], TARGETS[0])
        assert twin.compute()["count"] == 13
    assert metric.compute()["count"] == 12


def test_release_and_close_keep_what_was_seen(metric: TextMetric) -> None:
    metric.update(PREDS[:3], TARGETS[:3])
    metric.release()
    metric.update(PREDS[3:6], TARGETS[3:6])
    metric.close()
    assert "vcs-scoring" not in [thread.name for thread in threading.enumerate()]
    metric.update(PREDS[6:], TARGETS[6:])
    assert metric.compute()["count"] == 12
