"""Flags: why a VCS is 0, and whether order could be judged."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.stories import story
from vcs_numba import Params, Scores, score_similarity
from vcs_runtime import Scorer
from vcs_runtime.scoring import flags
from vcs_runtime.scoring.flags import FlagCounts, describe, flags_of, reference_points

#: Names of flags -> a similarity matrix and a GAS with which a pair has exactly these.
CASES = {
    (): (np.eye(5), 1.0),
    ("below_gate",): (np.eye(6)[[2, 1, 0, 3, 4, 5]] * 0.8, 0.4),
    ("zero_order",): (np.fliplr(np.eye(6)), 0.9),
    ("zero_content",): (np.eye(6) * 0.3, 0.2),
    ("zero_content", "zero_order"): (np.fliplr(np.eye(6)) * 0.3, 0.2),
    ("order_undefined",): (np.full((3, 2), 0.9), 0.9),
    ("order_undefined", "zero_content"): (np.full((1, 4), 0.1), 0.1),
    ("single_chunks",): (np.full((1, 1), 0.9), 0.9),
    ("single_chunks", "zero_content"): (np.full((1, 1), 0.4), 0.4),
}


def scored(expected: tuple[str, ...]) -> tuple[Scores, int, int]:
    similarity, gas = CASES[expected]
    return score_similarity(similarity, gas), *similarity.shape


@pytest.mark.parametrize("expected", CASES, ids=lambda names: "+".join(names) or "none")
def test_a_pair_has_the_flags_that_its_scores_say(expected: tuple[str, ...]) -> None:
    scores, n_ref, n_gen = scored(expected)
    assert flags_of(scores.to_dict(), n_ref, n_gen) == expected
    assert bool(describe(scores.to_dict(), n_ref, n_gen)) == bool(expected)


@pytest.mark.parametrize("small_text", ["paper", "reference"])
def test_every_zero_has_a_reason_and_nothing_else_has_one(small_text: str) -> None:
    draw = np.random.default_rng(1)
    for _ in range(3000):
        shape = draw.integers(1, 9, 2)
        level = draw.random()
        similarity = np.clip(
            level * np.eye(*shape) + draw.uniform(-0.2, 1 - 0.5 * level, shape), -1, 1
        )
        scores = score_similarity(similarity, draw.random(), Params(small_text=small_text))  # type: ignore[arg-type]
        found = flags_of(scores.to_dict(), *shape)
        assert (scores.vcs == 0) == bool(set(found) & set(flags.ZEROS))
        assert ("order_undefined" in found) == (scores.window_regularizer == 1)
        assert set(found) <= set(flags.FLAGS)


def test_the_sentence_gives_the_numbers_behind_a_zero() -> None:
    scores, n_ref, n_gen = scored(("below_gate",))
    sentence = describe(scores.to_dict(), n_ref, n_gen)
    assert (
        sentence
        == f"VCS is 0 because content (SAS {scores.sas:.3f}) and order (NAS {scores.nas:.3f})"
        f" together stay below 1: margin {scores.margin:.3f}."
    )
    scores, n_ref, n_gen = scored(("order_undefined",))
    assert (
        describe(scores.to_dict(), n_ref, n_gen)
        == "VCS is 0 by definition: with 3 and 2 chunks order cannot be judged. "
        f"Content can: GAS {scores.gas:.3f}, LAS {scores.las:.3f}."
    )


def test_counts_add_up_and_are_said_in_two_sentences() -> None:
    counts = FlagCounts()
    for names, times in zip(CASES, itertools.count(1), strict=False):
        scores, n_ref, n_gen = scored(names)
        for _ in range(times):
            judged = counts.add(scores.to_dict(), n_ref, n_gen)
        assert judged == (not {"order_undefined", "single_chunks"} & set(names))
    assert (counts.scored, counts.zeros, counts.not_judged) == (45, 36, 6 + 7 + 8 + 9)
    zeros, unjudged = counts.sentences()
    assert (
        zeros
        == "VCS is 0 for 36 of 45 pairs: in 2, content and order are too weak together; in 3, the"
        " order is no better than chance; in 5, the order is no better than chance and the texts"
        " share too little; in 13, the texts share too little; in 7, the texts share too little"
        " and order cannot be judged; in 6, order cannot be judged."
    )
    assert (
        unjudged == "Order could not be judged in 30 of 45 pairs: 17 with one chunk against one, "
        "13 with too few or too unequal chunks."
    )
    assert sum(counts.reasons.values()) == 36
    assert counts.mostly_zero
    assert FlagCounts().sentences() == []
    assert not FlagCounts().mostly_zero


def test_results_carry_flags_and_the_margin(scorer: Scorer) -> None:
    unequal = scorer.score(story(1, 3), story(2, 2))
    assert unequal.scores is not None
    assert "order_undefined" in unequal.flags
    assert unequal.to_dict()["flags"] == list(unequal.flags)
    assert unequal.to_dict()["margin"] == unequal.scores.margin < 0
    same = scorer.score(story(1, 6), story(1, 6))
    assert same.to_dict()["flags"] == []
    assert "single_chunks" in scorer.score(story(1, 1), story(1, 1)).flags
    [failed] = scorer.score_many([("", "")])
    assert failed.flags == ()
    assert "flags" not in failed.to_dict()


def test_reference_points_belong_to_the_settings_they_were_measured_with() -> None:
    line = (
        "vcs|def:1.0.0|chunk:1|lct:0|ctx:0.6/4|seg:sentencex@1.0.32+boundary-en@51c6|cut:0.55/118/fp32"
        "|emb:all-minilm-l6-v2@4e4b|long:window_mean/256|prec:fp32|engine:ort-cpu|v:0.1.0"
    )
    assert "another film is -0.684" in reference_points(line)
    for other in (
        line.replace("chunk:1", "chunk:3"),
        line.replace("minilm-l6", "x"),
        line.replace("4|seg", "4|clean:think|seg"),
    ):
        assert reference_points(other) == ""
