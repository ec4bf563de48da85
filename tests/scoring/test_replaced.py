"""Replaced words in explanations: lists, places, sentences, JSON and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Finished, vcs
from support.letters import BLUE, RED, Bars, Letters
from support.stories import write_pairs
from vcs_numba import strict_cap
from vcs_runtime import Options, Scorer
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.explanation import explain as explain_result
from vcs_runtime.scoring.result import StrictScores

ALSO = ["substitution"]


@pytest.fixture(scope="module")
def letters(tiny_bundle: Path) -> Iterator[Scorer]:
    with Scorer.open(embedder=Letters(), segmenter=Bars(), words=tiny_bundle) as scorer:
        yield scorer


@pytest.fixture(scope="module")
def explain(letters: Scorer) -> Callable[..., Explanation]:
    return lambda reference, generated, **how: letters.explain(
        reference, generated, also=ALSO, **how
    )


def shown(explanation: Explanation) -> list[tuple[str, str, str]]:
    return [(word.reference, word.generated, word.contrast) for word in explanation.replaced]


def test_replaced_words_have_their_places_in_both_texts(
    explain: Callable[..., Explanation],
) -> None:
    e = explain("it rains|" + RED, "Sam's BLUE car|the yellow door|one brown cup|his orange cat")
    assert shown(e)[-3:] == [
        ("green", "yellow", "excludes"),
        ("white", "brown", "excludes"),
        ("black", "orange", "excludes"),
    ]
    assert ("red", "BLUE", "excludes") in shown(e)
    assert [word.generated_chunk for word in e.replaced][-3:] == [1, 2, 3]
    assert [word.reference_chunk for word in e.replaced][-3:] == [2, 3, 4]
    for word in e.replaced:
        for chunks, number, place, text in (
            (e.reference, word.reference_chunk, word.reference_place, word.reference),
            (e.generated, word.generated_chunk, word.generated_place, word.generated),
        ):
            assert chunks[number].text[slice(*place)] == text
        assert word.word_class in ("thing", "action", "quality", "name")
        assert 0.1 <= word.weight <= 1
        assert word.contrast or -1 < word.similarity < 1


def test_a_word_that_only_one_text_negates_is_told_from_one_that_is_excluded(
    explain: Callable[..., Explanation],
) -> None:
    e = explain("the man smiles|the dog runs left", "the man never smiles|the dog runs right")
    assert shown(e) == [("smiles", "smiles", "negated"), ("left", "right", "excludes")]
    assert [word.similarity for word in e.replaced] == [-1, -1]
    both = explain("the man never smiles|the dog runs", "the man never sits|the dog runs")
    assert shown(both) == [("smiles", "sits", "")]


def test_a_word_of_the_reference_is_listed_once(explain: Callable[..., Explanation]) -> None:
    e = explain("a red car|the green door", "a blue brown car|the green door")
    assert e.words is not None
    assert e.words.pairs.gen.partner.tolist()[:2] == [0, 0]  # both stand for "red"
    weights = e.words.pairs.gen.weight.tolist()[:2]
    [word] = e.replaced
    assert word.reference == "red"
    assert word.generated == ["blue", "brown"][weights.index(max(weights))]


def test_what_hardly_counts_as_replaced_is_not_listed(letters: Scorer) -> None:
    for weight, count in ((0.1, 4), (0.099, 0)):
        e = letters.explain(RED, BLUE, also=ALSO)
        assert e.words is not None
        weights = e.words.pairs.gen.weight
        weights[weights > 0] = weight
        assert len(e.replaced) == count


def test_of_several_references_the_explained_one_has_the_words(
    letters: Scorer, explain: Callable[..., Explanation]
) -> None:
    alone = explain(RED, BLUE)
    for aggregate in ("max", "mean"):
        options = Options(aggregate=aggregate, also=ALSO)
        [(result, evidence)] = letters.iter_evidence([(["dogs bark", RED], BLUE)], options)
        assert evidence is not None
        e = explain_result(result, evidence, options.params)
        assert (e.replaced, e.strict) == (alone.replaced, alone.strict)
    assert e.result.strict != alone.strict  # which is the mean over both


def test_without_substitution_nothing_is_added(
    letters: Scorer, explain: Callable[..., Explanation]
) -> None:
    plain, also = letters.explain(RED, BLUE), explain(RED, BLUE)
    assert (plain.replaced, plain.strict) == ((), None)
    assert "substitution" not in json.dumps(plain.to_dict())
    values = json.loads(json.dumps(also.to_dict()))
    assert also.strict is not None
    scores = {name: values["scores"].pop(name) for name in StrictScores._fields}
    assert scores == also.strict._asdict()
    first = values.pop("replaced")[0]
    assert first["reference"] == "red"
    assert first["generated"] == "blue"
    assert first["contrast"] == "excludes"
    assert first["generated_place"] == [2, 6]
    assert values["sentences"].pop("substitution")
    assert {**values, "signature": ""} == {
        **json.loads(json.dumps(plain.to_dict())),
        "signature": "",
    }


@pytest.mark.parametrize(
    ("reference", "generated", "said"),
    [
        (RED, RED, "0.000: no word was replaced."),
        (RED, "ein|" + RED, "0.000: no word was replaced."),
        (
            RED,
            RED.replace("red", "blue"),
            (
                "0.125: 1 quality (0.125 of all) was replaced. Fewer than 8 words of a kind "
                "count as 8. Too few words were replaced to lower VCS."
            ),
        ),
        (
            "a man walks|a dog",
            "他走了|他哭了",
            (
                "0.000: no word could be compared, because one of the texts has no words "
                "in Latin letters."
            ),
        ),
        (
            "他走了|他笑了",
            "a man walks|a dog",
            (
                "0.000: no word could be compared, because one of the texts has no words "
                "in Latin letters."
            ),
        ),
    ],
)
def test_a_sentence_says_what_was_replaced(
    reference: str, generated: str, said: str, explain: Callable[..., Explanation]
) -> None:
    whole, _, margin = (
        explain(reference, generated)
        .sentences["substitution"]
        .partition(" For pairs with a VCS of 0, ")
    )
    assert whole == f"Substitution is {said}"
    assert margin == "" or margin.startswith("LAS counts: margin strict is -")


def test_the_sentence_says_where_few_words_count_as_more(
    explain: Callable[..., Explanation],
) -> None:
    few, many = (
        explain("|".join([RED] * n), "|".join([BLUE] * n)).sentences["substitution"] for n in (1, 3)
    )
    assert re.search(
        r": 3 qualities \(0\.\d+ of all\) and 1 noun .* replaced\. Fewer than 8 words of a kind"
        r" count as 8\.",
        few,
    )
    assert re.search(r": \d+ qualities \(.* replaced\. Strict", many)


def test_the_sentence_says_how_far_vcs_strict_is_down(explain: Callable[..., Explanation]) -> None:
    e = explain(RED, BLUE)
    assert e.strict is not None
    said = e.sentences["substitution"]
    assert said.endswith(f"VCS strict is {e.strict.vcs_strict:.3f}, down from {e.scores.vcs:.3f}.")
    assert f" Strict scores are at most {max(-1, strict_cap(e.strict.substitution)):z.3f}. " in said
    # Where VCS is 0 the margin is lowered.
    low = explain(RED, "|".join(reversed(BLUE.split("|"))))
    assert low.strict is not None
    assert low.scores.vcs == 0
    assert low.strict.margin_strict < low.scores.margin
    down = f"argin strict is {low.strict.margin_strict:.3f}, down from {low.scores.margin:.3f}."
    assert low.sentences["substitution"].endswith(down)


def test_things_weigh_more_and_the_sentence_says_so(explain: Callable[..., Explanation]) -> None:
    e = explain(
        "the dog and the cup|the tree and the car", "the bike and the sofa|the phone and the bread"
    )
    assert e.strict is not None
    assert e.strict.substitution == pytest.approx(e.strict.replaced_things * 1.3)
    assert ": 3 nouns (" in e.sentences["substitution"]
    assert "Nouns count 1.30 times." in e.sentences["substitution"]


@pytest.fixture
def printed(tiny_bundle: Path, tmp_path: Path) -> Callable[..., Finished]:
    def explained(reference: str, generated: str, *more: Any) -> Finished:
        path = tmp_path / "pairs.jsonl"
        write_pairs(path, [{"id": 1, "reference": reference, "generated": generated}])
        engine = ("--bundle", tiny_bundle, "--words", tiny_bundle, "--device", "cpu")
        return vcs("explain", path, *engine, *more)

    return explained


def test_the_command_lists_what_became_what(printed: Callable[..., Finished]) -> None:
    texts = (
        "A man opens the red door. The dog runs.",
        "A man opens the blue door. The dog never runs.",
    )
    done = printed(*texts, "--also", "substitution")
    assert done.code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    head = lines.index(["replaced", "became", "kind", "similarity", "chunks"])
    first, second = lines[head + 1 : head + 3]
    assert (first[:2], first[3:]) == (["red", "blue"], ["excludes", "it", "1", ">", "1"])
    assert (second[:2], second[3:]) == (["runs", "runs"], ["one", "is", "negated", "2", ">", "2"])
    assert lines[head + 3] == []
    assert "Substitution is 0." in done.stdout
    plain = printed(*texts)
    assert "replaced" not in plain.stdout
    assert "substitution" not in plain.stdout.lower()


def test_many_replaced_words_are_cut_to_the_surest(printed: Callable[..., Finished]) -> None:
    things = "man woman boy girl dog cat horse bird table chair ball cup".split()
    sentence = "The {} holds a {} cup, a {} ball and a {} knife."
    # In other words, which is less sure.
    turned = "A {1} cup and a {2} ball and a knife, {3}, the {0} holds."
    reference = " ".join(sentence.format(thing, "red", "green", "white") for thing in things)
    colours = ("blue", "yellow", "black")
    generated = " ".join(
        (sentence if i > 5 else turned).format(things[i], *colours) for i in range(12)
    )
    done = printed(reference, generated, "--also", "substitution")
    rows = [line for line in done.stdout.splitlines() if "excludes it" in line]
    assert len(rows) == 20
    listed = json.loads(printed(reference, generated, "--also", "substitution", "--json").stdout)[
        "replaced"
    ]
    assert len(listed) > 30
    assert f"\nand {len(listed) - 20} more, which are less sure\n" in done.stdout
    first = sorted(range(len(listed)), key=lambda i: -listed[i]["weight"])[:20]
    assert set(first) != set(range(20))
    assert [row.split()[:2] + row.split()[-3:-2] for row in rows] == [
        [listed[i]["reference"], listed[i]["generated"], str(listed[i]["reference_chunk"] + 1)]
        for i in sorted(first)
    ]
