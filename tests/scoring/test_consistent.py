"""`segmenter="consistent"`: one segmenter for all pairs of a call, and a clear error where no job is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stories import story, stripped
from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.spark import make_predict_fn
from vcs_runtime.training import TrainingScorer
from vcs_runtime.triton.repository import Deployment

RULES = "|seg:sentencex@"
LEARNED = "|seg:tiny-sat@"


@pytest.fixture(scope="module")
def consistent(whole_bundle: Path) -> Iterator[Scorer]:
    with Scorer.open(whole_bundle, "cpu", segmenter="consistent") as opened:
        yield opened


def test_each_call_of_score_many_is_a_job_of_one_segmenter(consistent: Scorer, whole_bundle: Path) -> None:
    written, bare = (story(1), story(2)), (story(1), stripped(3, 6))
    for segmenter, pairs, seg in (
        ("rules", [written], RULES), ("learned", [written, bare], LEARNED), ("rules", [written], RULES),
    ):  # fmt: skip
        with Scorer.open(whole_bundle, "cpu", segmenter=segmenter) as alone:
            wanted = alone.score_many(pairs)
        found = consistent.score_many(pairs)
        assert found == wanted
        assert all(seg in result.signature for result in found)
    with Scorer.open(whole_bundle, "cpu") as auto:
        mixed = auto.score_many([written, bare])
    assert [result.segmenter for result in mixed] == ["sentencex", "tiny-sat"]
    assert re.search(r"\|seg:sentencex@[\d.]+\+tiny-sat@", mixed[0].signature)


def test_one_pair_is_a_job(consistent: Scorer) -> None:
    assert RULES in consistent.score(story(1), story(2)).signature
    assert LEARNED in consistent.score([story(1), stripped(4, 5)], story(2)).signature  # any reference
    assert consistent.explain(story(1), story(2)).result.segmenter == "sentencex"
    assert "|seg:none|" in consistent.score_short(story(1), story(2)).signature


def test_pairs_that_cannot_be_scored_decide_nothing(consistent: Scorer) -> None:
    results = consistent.score_many([(stripped(1, 6), "..."), (story(1), story(2))])
    assert [result.segmenter for result in results] == [None, "sentencex"]


def test_hm_cf_has_the_same_segmenter(consistent: Scorer, whole_bundle: Path) -> None:
    pairs = [(story(1), story(2)), (story(1), stripped(3, 6))]
    with Scorer.open(whole_bundle, "cpu", segmenter="learned") as alone:
        assert consistent.score_many(pairs, also=["hm-cf"]) == alone.score_many(pairs, also=["hm-cf"])


def test_the_scripts_of_all_jobs_are_counted(whole_bundle: Path) -> None:
    with Scorer.open(whole_bundle, "cpu", segmenter="consistent") as opened:
        opened.score_many([(story(1), "Мужчина идёт. Он видит собаку.")])
        assert (opened.scripts.texts, opened.scripts.not_latin) == (2, 1)


def test_a_bundle_with_one_segmenter_has_nothing_to_decide(tiny_bundle: Path) -> None:
    with Scorer.open(tiny_bundle, "cpu", segmenter="consistent") as opened:
        assert RULES in opened.signature
        [result] = opened.iter_scores([(story(1), stripped(3, 6))])
    assert "has no sentence punctuation" in str(result.error)


def test_where_no_job_is_known_it_is_refused(consistent: Scorer, whole_bundle: Path) -> None:
    config = ScorerConfig(whole_bundle, "cpu", segmenter="consistent")
    refused = (
        "segmenter: 'consistent' is decided from all texts of a job, and .*: choose 'rules' or 'learned'"
    )
    with pytest.raises(ValueError, match=refused):
        next(iter(consistent.stream(iter([(story(1), story(2))]), lambda pair: pair)))
    with pytest.raises(ValueError, match=refused):
        _ = consistent.signature
    with pytest.raises(ValueError, match=refused):
        TrainingScorer(config)
    with pytest.raises(ValueError, match=refused):
        make_predict_fn(config)
    with pytest.raises(ValueError, match=refused):
        Deployment(config=config)


def test_a_configuration_for_other_processes_keeps_the_word(whole_bundle: Path) -> None:
    assert ScorerConfig(whole_bundle, segmenter="consistent").absolute().segmenter == "consistent"
