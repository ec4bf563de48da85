"""Explanations: verdicts, costs that add up, sentences; the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support.command_line import Finished, vcs
from support.explained import drawn, explained
from support.stories import story, write_pairs
from vcs_numba import Params, recombine, score_similarity
from vcs_runtime import Scorer, TextError
from vcs_runtime.scoring.explanation import Explanation, shares
from vcs_runtime.scoring.verdicts import (
    COVERED,
    IN_PLACE,
    MISSING,
    MOVED,
    REPEATED,
    SHIFTED,
    UNSUPPORTED,
    Thresholds,
    crossings,
    position,
)


def verdicts(similarity: object) -> tuple[list[str], list[str]]:
    e = explained(similarity)
    return [chunk.verdict for chunk in e.reference], [chunk.verdict for chunk in e.generated]


def permuted(order: list[int]) -> np.ndarray:
    return np.where(np.eye(len(order), dtype=bool)[:, order], 0.9, 0.1)


def test_a_copy_is_in_place() -> None:
    assert verdicts(permuted([0, 1, 2, 3])) == ([COVERED] * 4, [IN_PLACE] * 4)


def test_two_chunks_that_changed_places_have_moved() -> None:
    assert verdicts(permuted([0, 2, 1, 3]))[1] == [IN_PLACE, MOVED, MOVED, IN_PLACE]


def test_a_reversed_and_a_rotated_text_have_moved() -> None:
    assert verdicts(permuted([5, 4, 3, 2, 1, 0]))[1] == [MOVED] * 6
    assert verdicts(permuted([3, 4, 5, 0, 1, 2]))[1] == [MOVED] * 6


def test_what_was_deleted_is_missing_and_what_follows_has_shifted_not_moved() -> None:
    left = [0, 1, 2, 3, 10, 11]  # the middle of twelve is gone
    reference, generated = verdicts(np.where(np.eye(12, dtype=bool)[:, left], 0.9, 0.1))
    assert [i for i, verdict in enumerate(reference) if verdict == COVERED] == left
    assert MOVED not in generated
    assert SHIFTED in generated


def test_what_was_inserted_is_weakly_supported_and_the_rest_has_not_moved() -> None:
    values = np.insert(permuted([0, 1, 2, 3, 4]), 2, 0.2, axis=1)
    values = np.insert(values, 2, 0.2, axis=1)
    reference, generated = verdicts(values)
    assert [j for j, verdict in enumerate(generated) if verdict == UNSUPPORTED] == [2, 3]
    assert MOVED not in generated
    assert reference == [COVERED] * 5


def test_a_match_that_clearly_tells_another_chunk_covers_none() -> None:
    values = [[0.95, 0.1], [0.6, 0.1], [0.1, 0.9]]  # the second chunk is alike the first, no more
    assert verdicts(values)[0] == [COVERED, MISSING, COVERED]
    lenient = explained(values, thresholds=Thresholds(rival=0.4))
    assert [chunk.verdict for chunk in lenient.reference] == [COVERED] * 3


def test_a_tolerated_chunk_is_in_place() -> None:
    values = permuted([0, 2, 1, 3])
    tolerant = explained(values, params=Params(lct=1.0))
    assert [chunk.verdict for chunk in tolerant.generated] == [IN_PLACE] * 4


def looped(
    cosine: float = 1.0, reference: tuple[int, ...] = (0, 1, 2, 3), **options: object
) -> Explanation:
    """A pair whose reference tells these kinds of sentences.

    The generated text tells kind 1 three times.

    The second of the three has other words; its vector has this cosine to those of its kind.
    """
    kinds = np.eye(5)
    again = cosine * kinds[1] + np.sqrt(1 - cosine**2) * kinds[4]
    generated = [kinds[0], kinds[1], again, kinds[1], kinds[2], kinds[3]]
    left, right = (
        [*np.array(rows, np.float32)] for rows in ([kinds[i] for i in reference], generated)
    )
    return explained(np.array(left) @ np.array(right).T, vectors=(left, right), **options)  # type: ignore[arg-type]


def test_a_chunk_like_an_earlier_one_is_repeated_and_names_it() -> None:
    e = looped(0.97)
    assert [chunk.repeats for chunk in e.generated] == [None, None, 1, 1, None, None]
    assert [chunk.verdict == REPEATED for chunk in e.generated] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert position(e.generated[3], "chunk") == "repeats chunk 2"
    assert next(iter(e.sentences.values())) == "2 of 6 chunks repeat an earlier one."
    one = looped(0.9)
    assert [chunk.repeats for chunk in one.generated] == [None, None, None, 1, None, None]
    assert one.sentences["repeated"] == "1 of 6 chunks repeats an earlier one."
    strict = looped(0.97, thresholds=Thresholds(repeat=0.98))
    assert strict.count(REPEATED) == 1


def test_without_vectors_chunks_of_the_same_words_are_repeated() -> None:
    texts = (["A man runs.", "He falls."], ["A man runs.", "a man  runs", "He falls.", "...", "!"])
    e = explained(np.full((2, 5), 0.9), texts=texts)
    assert [chunk.repeats for chunk in e.generated] == [None, 0, None, None, None]


def test_what_the_reference_says_twice_may_be_said_twice() -> None:
    assert looped(reference=(0, 1, 1, 2, 3)).count(REPEATED) == 1
    assert looped(reference=(0, 1, 1, 1, 2, 3)).count(REPEATED) == 0


def test_a_loop_does_not_move_what_is_told_in_order() -> None:
    order = [0, 1, 2, *[1] * 30, 3, 4, 5, 6, 7, 8, 9]
    kinds = np.eye(10, dtype=np.float32)
    e = explained(kinds[:, order], vectors=([*kinds], [*kinds[order]]))
    assert e.count(REPEATED) == 30
    assert e.count(MOVED) == 0


def test_a_long_text_is_compared_with_all_that_was_said_before() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(700, 16))
    rows[650:] = rows[:50] + 0.01
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = [*rows.astype(np.float32)]
    e = explained(
        rows[:3] @ rows.T, vectors=(vectors[:3], vectors), thresholds=Thresholds(repeat=0.7)
    )
    near = np.tril(rows @ rows.T >= 0.7, -1)
    expected = [int(row.argmax()) if row.any() else None for row in near]
    assert [chunk.repeats for chunk in e.generated] == expected
    assert expected[650:] != [None] * 50


def test_crossings_are_counted_among_supported_chunks() -> None:
    match = np.array([3, 0, 1, 3, 2])
    supported = np.array([True, True, True, True, True])
    assert crossings(match, supported).tolist() == [3, 1, 1, 1, 2]
    supported[0] = False
    assert crossings(match, supported).tolist() == [3, 0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(40))
def test_costs_add_up_to_what_was_lost(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = draw.integers(1, 15, 2)
    params = Params(
        lct=float(draw.choice([0.0, 0.5])), small_text=str(draw.choice(["paper", "reference"]))
    )  # type: ignore[arg-type]
    scores = score_similarity(draw.uniform(-0.3, 1, shape), float(draw.uniform(-0.5, 1)), params)
    costs = shares(scores)
    assert sum(costs.values()) + scores.vcs == pytest.approx(1.0, abs=1e-12)


def test_only_what_is_not_perfect_costs() -> None:
    scores = score_similarity(np.eye(8) * 0.9 + 0.05, 0.9)
    costs = shares(scores)
    assert (scores.nas_d, scores.nas_l, scores.window_regularizer) == (1.0, 1.0, 0.0)
    assert costs["nas_d"] == costs["nas_l"] == costs["window_regularizer"] == 0.0
    assert costs["gas"] > 0
    assert costs["las"] > 0


def test_two_parts_that_lose_alike_cost_alike() -> None:
    scores = score_similarity(np.eye(8), 1.0)._replace(
        nas_d_precision=0.5, nas_d_recall=0.5, nas_l_precision=0.5, nas_l_recall=0.5
    )
    costs = shares(recombine(scores))
    assert costs["nas_d"] == pytest.approx(costs["nas_l"], abs=1e-15)
    assert costs["gas"] == costs["las"] == 0.0


def test_sentences_say_the_amounts() -> None:
    e = drawn(20, 14)
    assert set(e.sentences) == {"vcs", "loss", *e.costs}
    assert "loss" not in e.sentences["vcs"]
    # Each abbreviation stands beside its word.
    assert e.sentences["loss"].count("(") == len(e.costs)
    for name, cost in e.costs.items():
        assert f"cost {cost:.3f}" in e.sentences[name]
    assert e.sentences["nas_l"].endswith("Missing chunks cost order, too.")
    assert explained(np.eye(5), 1.0).sentences["loss"] == "Nothing lowered the score."


def test_one_chunk_is_called_the_only_one_and_no_number_is_minus_nothing() -> None:
    alone = explained([[-1e-5]], -1e-5)
    assert (
        alone.conclusion
        == "It leaves out the only chunk of the reference. Its only chunk is not in the reference."
    )
    assert "-0.000" not in " ".join(alone.sentences.values())
    longer = explained(np.full((3, 1), 0.1))
    assert longer.conclusion.startswith(
        "It leaves out all 3 chunks of the reference. Its only chunk"
    )
    assert (
        explained(np.eye(5))
        .sentences["window_regularizer"]
        .endswith("nothing is subtracted for chance.")
    )


def test_positions_count_from_one() -> None:
    e = explained(permuted([0, 2, 1, 3]))
    assert position(e.generated[1], "sentence") == "matches reference sentence 3; expected: 2"
    assert position(e.generated[0], "sentence") == "matches reference sentence 1"


def test_what_has_no_counterpart_is_found_nowhere() -> None:
    e = explained([[0.9, 0.1, 0.1], [0.1, 0.2, 0.1], [0.1, 0.2, 0.9]])
    assert e.reference[1].verdict == MISSING
    assert e.generated[1].verdict == UNSUPPORTED
    assert position(e.reference[1], "word") == f"nearest: word {e.reference[1].match + 1}"
    assert position(e.generated[1], "word") == f"nearest: word {e.generated[1].match + 1}"


@pytest.mark.parametrize(
    "values",
    [
        {"support": 1.5},
        {"rival": -0.1},
        {"order": True},
        {"support": float("nan")},
        {"repeat": 1.1},
    ],
)
def test_thresholds_out_of_range_are_named(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        Thresholds(**values)


def test_a_scorer_explains_what_it_scores(scorer: Scorer) -> None:
    e = scorer.explain(story(1), story(2), params=Params(lct=0.5))
    result = scorer.score(story(1), story(2), params=Params(lct=0.5))
    assert e.result == result
    assert e.scores == result.scores
    assert (
        (len(e.reference), len(e.generated)) == e.similarity.shape == (result.n_ref, result.n_gen)
    )
    json.dumps(e.to_dict(), allow_nan=False)


def test_short_texts_are_explained_by_words(scorer: Scorer) -> None:
    e = scorer.explain(story(1, 1), story(2, 1), short=True)
    assert e.scores == scorer.score_short(story(1, 1), story(2, 1)).scores
    assert all(" " not in chunk.text for chunk in e.reference)


def test_what_cannot_be_scored_cannot_be_explained(scorer: Scorer) -> None:
    with pytest.raises(TextError, match="generated"):
        scorer.explain(story(1), "...")


def run(*arguments: object) -> Finished:
    return vcs("explain", *arguments)


def test_the_command_explains_a_file(tiny_bundle: Path, scorer: Scorer, tmp_path: Path) -> None:
    pairs = tmp_path / "p.jsonl"
    hostile = story(3) + " [red]no markup[/red] \x1b[31m escape."
    rows = [
        {"id": "a", "reference": story(1), "generated": hostile},
        {"id": "b", "reference": story(1), "generated": "!"},
    ]
    write_pairs(pairs, rows)
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    code, out, err = run(pairs, "--json", *engine)
    assert code == 1
    assert err == "vcs-runtime: b: generated: the text has only punctuation\n"
    expected = json.dumps(scorer.explain(story(1), hostile).to_dict())
    assert json.loads(out) == {"id": "a", **json.loads(expected)}
    (tmp_path / "p.toml").write_text("[thresholds]\nsupport = 0.9")
    at = (pairs, "--id", "a", "--params", tmp_path / "p.toml")
    code, out, err = run(*at, *engine)
    assert (code, err) == (0, "")
    assert "red" in out  # brackets are punctuation, and the words are no markup
    assert "\x1b" not in out
    assert "support 0.9" not in out
    assert (
        "support 0.9, rival 0.3, order 1, repeat 0.95"
        in vcs("--verbose", "explain", *at, *engine).stdout
    )
    assert scorer.signature in out


@pytest.mark.parametrize("columns", [80, 60])
def test_no_word_is_broken_at_the_end_of_a_line(
    columns: int, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [story(1, 20), story(2, 30) + " The man said so again." * 4]
    write_pairs(tmp_path / "p.jsonl", [{"id": "a", "reference": texts[0], "generated": texts[1]}])
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    explanation = json.loads(run(tmp_path / "p.jsonl", "--json", *engine)[1])
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = run(tmp_path / "p.jsonl", *engine)
    assert code == 0
    *lines, signature = out.splitlines()
    assert max(map(len, lines)) <= columns
    assert signature == explanation["signature"]
    chunks = [*explanation["generated"], *explanation["reference"]]
    said = [
        *explanation["sentences"].values(),
        *(f"{chunk['text']} {chunk['verdict']}," for chunk in chunks),
    ]
    unpunctuated = out.replace(".", "")  # sentences are shown as they were written
    assert set(" ".join(said).split()) <= {*out.split(), *unpunctuated.split()}


def test_wrong_usage_of_the_command(tiny_bundle: Path, tmp_path: Path) -> None:
    assert run()[0] == 2
    assert run("x", "y", "--id", "z")[0] == 2
    write_pairs(tmp_path / "p.jsonl", [{"id": "a", "reference": "x", "generated": "y"}])
    assert (
        "no pair has the id 'q'"
        in run(tmp_path / "p.jsonl", "--id", "q", "--bundle", tiny_bundle).stderr
    )
