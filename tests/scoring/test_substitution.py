"""Substitution beside VCS: replaced words, several references, files, comparisons and rewards."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from support.command_line import Finished
from support.letters import BLUE, RED, Bars, Letters
from support.stories import story, write_pairs
from vcs_runtime import BundleError, Options, Scorer, ScorerConfig
from vcs_runtime.scoring.result import StrictScores
from vcs_runtime.training.metric import TextMetric
from vcs_runtime.training.scorer import TrainingScorer

ALSO = ["substitution"]


@pytest.fixture(scope="module")
def letters(tiny_bundle: Path) -> Iterator[Scorer]:
    with Scorer.open(embedder=Letters(), segmenter=Bars(), words=tiny_bundle) as scorer:
        yield scorer


def strict(scorer: Scorer, reference: str | list[str], generated: str, **how: str) -> StrictScores:
    found = scorer.score(reference, generated, also=ALSO, **how).strict  # type: ignore[arg-type]
    assert found is not None
    return found


def test_replaced_words_of_a_class_count_and_cap_vcs(letters: Scorer) -> None:
    result = letters.score(RED, BLUE, also=ALSO)
    assert result.strict is not None
    _, things, actions, qualities, names, *_ = result.strict
    # Four words, each replaced where it stood. Fewer than eight words of a class count as eight.
    assert things + actions + qualities + names == 4 / 8
    assert result.substitution == max(things * 1.3, actions, qualities, names) > 0.25
    cap = 1 - 6 * (result.substitution - 0.25)
    assert result.vcs > cap == pytest.approx(result.vcs_strict)
    assert result.margin_strict == result.vcs_strict
    one = letters.score(RED, RED.replace("red", "blue"), also=ALSO)
    assert one.substitution == 1 / 8
    assert one.vcs_strict == one.vcs


@pytest.mark.parametrize(
    "longer", [RED.replace("car", "fast old car"), RED.replace("cat", "cat sleeps")]
)
def test_words_that_were_only_added_or_left_out_do_not_count(longer: str, letters: Scorer) -> None:
    assert (
        strict(letters, RED, longer).substitution
        == strict(letters, longer, RED).substitution
        == 0.0
    )


def test_a_pair_has_the_same_numbers_alone_in_any_order_and_beside_failures(scorer: Scorer) -> None:
    pairs = [(story(i, 3 + i), story(40 + i, 2 + i)) for i in range(8)]
    together = scorer.score_many(pairs, also=ALSO)
    assert any(result.substitution > 0 for result in together)
    assert [scorer.score(*pair, also=ALSO) for pair in pairs] == together
    assert scorer.score_many(pairs[::-1], also=ALSO) == together[::-1]
    mixed = scorer.score_many([("", "x"), pairs[2], ("...", "x"), pairs[5]], also=ALSO)
    assert [mixed[1], mixed[3]] == [together[2], together[5]]
    assert math.isnan(mixed[0].vcs_strict)
    assert mixed[2].strict is None


def test_of_several_references_that_of_vcs_counts_or_the_mean_of_all(letters: Scorer) -> None:
    references = ["a red bus|dogs bark", RED, "the blue sea|a red cup"]
    single = [strict(letters, reference, BLUE) for reference in references]
    assert len({own.substitution for own in single}) == 3
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        texts = [references[i] for i in order]
        result = letters.score(texts, BLUE, also=ALSO)
        assert references.index(texts[result.reference_index]) == 1
        assert result.strict == single[1]
        mean = strict(letters, texts, BLUE, aggregate="mean")
        assert mean == tuple(math.fsum(values) / 3 for values in zip(*single, strict=True))


@pytest.mark.parametrize("aggregate", ["max", "mean"])
def test_the_evidence_has_the_words_and_what_replaced_them(aggregate: str, letters: Scorer) -> None:
    options = Options(aggregate=aggregate, also=ALSO)
    [(_, evidence)] = letters.iter_evidence([(["dogs bark", RED], BLUE)], options)
    assert evidence is not None
    words = evidence.words
    assert words is not None
    partners = words.pairs.gen.partner
    shown = [
        (words.reference.lexemes[partner].form, words.generated.lexemes[i].form)
        for i, partner in enumerate(partners)
        if partner >= 0
    ]
    assert shown == [("red", "blue"), ("green", "yellow"), ("white", "brown"), ("black", "orange")]
    [(_, without)] = letters.iter_evidence([(RED, BLUE)])
    assert without is not None
    assert without.words is None


def test_texts_of_the_same_letters_have_words_of_their_own(letters: Scorer) -> None:
    for text in ("the red|carpet", "the redcar|pet"):
        [(_, evidence)] = letters.iter_evidence([(text, text)], Options(also=ALSO))
        assert evidence is not None
        assert evidence.words is not None
        found = [word.form for word in evidence.words.generated.lexemes]
        assert found == text.replace("|", " ").split()[1:]


def test_without_the_default_bundle_the_error_says_what_it_is_needed_for(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path))
    with Scorer.open(tiny_bundle, "cpu") as own:
        assert own.score(story(1), story(2)).vcs >= 0
        read: list[int] = []
        stream = own.stream(
            (read.append(1) for _ in range(3)), lambda _: (RED, BLUE), Options(also=ALSO)
        )
        with pytest.raises(BundleError, match="words of substitution.*vcs-runtime fetch default"):
            next(stream)
        assert not read
    with pytest.raises(BundleError, match="words of substitution"):
        TrainingScorer(ScorerConfig(tiny_bundle, "cpu"), score="vcs_strict")


def test_a_bundle_of_words_has_an_absolute_path_in_other_processes() -> None:
    assert ScorerConfig(words="own").absolute().words == str(Path("own").absolute())
    assert ScorerConfig().absolute().words == "default"


def test_rewards_may_be_strict(tiny_bundle: Path, scorer: Scorer) -> None:
    config = ScorerConfig(tiny_bundle, "cpu", words=tiny_bundle)
    pairs = [(story(i, 4), story(i + 1, 4)) for i in range(4)]
    expected = scorer.score_many(pairs, also=ALSO)
    references, completions = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for score, values in (
        ("margin_strict", [result.margin_strict for result in expected]),
        ({"las": 1.0, "substitution": -2.0}, [r.las - 2 * r.substitution for r in expected]),
    ):
        rewards = TrainingScorer(config, score=score)
        assert rewards.reward_fn(["p"] * 4, completions, reference=references) == values
    assert (
        TrainingScorer(config, score={"margin": 1, "substitution": -1}).compute_score("d", "", TEXT)
        == -2
    )


TEXT = story(7)


def test_means_of_an_evaluation_have_it(tiny_bundle: Path, scorer: Scorer) -> None:
    pairs = [(story(i, 4), story(i + 1, 4)) for i in range(3)]
    results = scorer.score_many(pairs, also=ALSO)
    metric = TextMetric(ScorerConfig(tiny_bundle, "cpu", words=tiny_bundle), also=ALSO)
    metric.update([*(pair[1] for pair in pairs), ""], [*(pair[0] for pair in pairs), "x"])
    other = TextMetric(ScorerConfig(tiny_bundle, "cpu", words=tiny_bundle), score="margin_strict")
    other.update(*reversed(pairs[0]))
    means = metric.merge_state(other).compute()
    for name in StrictScores._fields:
        expected = [getattr(result, name) for result in (*results, results[0])]
        assert means[name] == pytest.approx(np.mean(expected), abs=1e-15)
    assert means["unscorable"] == 1
    assert "substitution" not in TextMetric(ScorerConfig(tiny_bundle, "cpu")).compute()


def test_pairs_that_count_as_nothing_have_the_lowest_margin(
    score: Callable[..., Finished], tmp_path: Path
) -> None:
    rows = [{"id": i, "reference": story(1), "generated": story(1) if i else ""} for i in range(2)]
    write_pairs(tmp_path / "p.jsonl", rows)
    means = {}
    for failed in ("skip", "zero"):
        done = score(tmp_path / "p.jsonl", "--also", "substitution", "--on-error", failed, "--json")
        scores = json.loads(done.stdout)["scores"]
        means[failed] = [
            scores[name]["mean"] for name in ("vcs_strict", "margin_strict", "substitution")
        ]
    assert means["skip"] == pytest.approx([1, 1, 0], abs=1e-6)
    assert means["zero"] == pytest.approx([0.5, 0, 0], abs=1e-6)
