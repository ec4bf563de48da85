"""Flags: why a VCS is 0, and whether order could be judged."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from support.stories import story
from vcs_numba import Params, Scores, score_similarity
from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.report.systems import Systems
from vcs_runtime.scoring import flags
from vcs_runtime.scoring.columns import to_columns
from vcs_runtime.scoring.flags import (
    FlagCounts,
    describe,
    flags_of,
    flags_of_texts,
    reference_points,
)
from vcs_runtime.training.scorer import TrainingScorer

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
        f" together stay below 1. The margin is {scores.margin:.3f}."
    )
    scores, n_ref, n_gen = scored(("order_undefined",))
    assert (
        describe(scores.to_dict(), n_ref, n_gen)
        == "VCS is 0 by definition: with 3 and 2 chunks order cannot be judged. "
        f"Content can be judged: GAS {scores.gas:.3f}, LAS {scores.las:.3f}."
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
        == "36 of 45 pairs have a VCS of 0: 2 because content and order are too weak together; 3"
        " because the order is no better than chance; 5 because the order is no better than chance"
        " and the texts share too little; 13 because the texts share too little; 7 because the"
        " texts share too little and order cannot be judged; 6 because order cannot be judged."
    )
    assert (
        unjudged == "Order could not be judged in 30 of 45 pairs: 17 with one chunk in each text, "
        "13 with numbers of chunks that are too small or too different."
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
    assert "another film have a mean margin of -0.684" in reference_points(line)
    for other in (
        line.replace("chunk:1", "chunk:3"),
        line.replace("minilm-l6", "x"),
        line.replace("4|seg", "4|clean:think|seg"),
    ):
        assert reference_points(other) == ""


ONE_SENTENCE = "a dog and " * 14 + "runs"  # of 43 words


@pytest.mark.parametrize(
    ("reference", "generated", "chunk_size", "expected"),
    [
        ([ONE_SENTENCE], ["A dog", "A cat"], 1, True),
        (["A dog", "A cat"], [ONE_SENTENCE], 1, True),
        (["A dog", "A cat"], ["狗" * 301], 1, True),
        (["A dog", "A cat"], ["dog " * 40], 1, False),
        (["A dog", "A cat"], ["狗" * 300], 1, False),
        ([ONE_SENTENCE], [ONE_SENTENCE], 1, False),
        ([ONE_SENTENCE, "A dog"], [ONE_SENTENCE, "A cat"], 1, False),
        ([ONE_SENTENCE], ["A dog", "A cat"], 2, False),
        ([ONE_SENTENCE * 2], ["A dog", "A cat"], 2, True),
        (["A dog", "A cat", "A cow"], ["A dog then a cat"], 1, True),
        (["A dog", "A cat", "A cow"], ["A dog"], 1, False),
    ],
)
def test_many_words_in_one_chunk_beside_several_are_noted(
    reference: list[str], generated: list[str], chunk_size: int, expected: bool
) -> None:
    noted = flags_of_texts(reference, generated, chunk_size)
    assert noted == (("not_split",) if expected else ())


def test_a_text_that_was_not_split_is_named_by_every_door(
    scorer: Scorer, tiny_bundle: Path, tmp_path: Path
) -> None:
    several, one = story(1, 4), f"{ONE_SENTENCE}."
    result = scorer.score(several, one)
    assert result.n_gen == 1
    assert "not_split" in result.flags
    explanation = scorer.explain(several, one)
    assert explanation.flags == result.flags
    assert "--segmenter learned" in explanation.sentences["vcs"]
    assert ",".join(result.flags) == to_columns([result])["flags"][0]
    [trained] = TrainingScorer(ScorerConfig(tiny_bundle, "cpu")).score_many([(several, one)])
    assert trained.flags == result.flags
    assert "not_split" in scorer.score([one, story(2, 1)], several, aggregate="mean").flags

    # A record is JSON, a row of a table, or from a file of an earlier version.
    record = {"id": "film 7", **result.to_dict()}
    flagged = {"pairs": 1, "first": "film 7"}
    for names, counted in (
        (record["flags"], flagged),
        (" ".join(record["flags"]), flagged),
        (None, None),
    ):
        summary = Summary(result.signature)
        summary.add({**record, "flags": names})
        assert summary.to_dict().get("not_split") == counted
        systems = Systems()
        systems.begin("one", result.signature)
        systems.add("film 7", {**record, "flags": names}, None)
        assert ("not_split" in systems.row(0)[3]) == bool(counted)
        sentences = systems.to_index("t")["sentences"]
        assert any("(first: film 7)" in sentence for sentence in sentences) == bool(counted)


def test_short_texts_and_segments_with_times_are_never_noted(
    scorer: Scorer, tiny_bundle: Path
) -> None:
    assert "not_split" not in scorer.score_short(ONE_SENTENCE, "dogs run").flags
    timed = f"[0:00-0:05] {ONE_SENTENCE}"
    several = "[0:00-0:05] A dog runs. [0:05-0:09] A man sits."
    with Scorer.open(tiny_bundle, "cpu", segmenter="time-stamps") as by_time:
        result = by_time.score(timed, several)
    assert (result.n_ref, result.n_gen) == (1, 2)
    assert "not_split" not in result.flags


def test_counts_of_several_systems_name_the_first_pair_that_was_not_split() -> None:
    scores, n_ref, n_gen = scored(("order_undefined",))
    total = FlagCounts()
    for name in ("a", "b\x1b"):
        counts = FlagCounts()
        counts.add(scores.to_dict(), n_ref, n_gen, ("not_split",), name)
        counts.add(scores.to_dict(), n_ref, n_gen)
        total += counts
    assert total.about_not_split().startswith(
        "In 2 of 4 pairs (first: a), one text counts as a single sentence"
    )
    assert total.flags["not_split"] == 2
    assert FlagCounts().about_not_split() == ""
