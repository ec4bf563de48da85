"""From text to score on a tiny bundle."""

from __future__ import annotations

import math
import pickle
import random
import re
import string
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, permutations
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vcs_runtime
from support.stories import story
from vcs_numba import Params, score_embeddings
from vcs_runtime import (
    BundleError,
    DeviceError,
    MissingExtraError,
    Options,
    Scorer,
    ScorerConfig,
    Segmenter,
    TextError,
)
from vcs_runtime.report import figures
from vcs_runtime.scoring import preparation

Watch = Callable[[Any, str], list[Any]]
PAIRS = [(story(i, 2 + i % 9), story(50 + i, 1 + i % 7)) for i in range(40)]


def test_equal_texts_score_one(scorer: Scorer) -> None:
    result = scorer.score(PAIRS[5][0], PAIRS[5][0])
    assert result.vcs == pytest.approx(1.0, abs=1e-6)
    assert (result.n_ref, result.n_gen) == (7, 7)
    assert result.scores is not None
    assert result.scores.gas <= 1.0


def test_no_cosine_exceeds_one_although_rounded_vectors_are_longer(scorer: Scorer) -> None:
    texts = [reference for reference, _ in PAIRS]
    lengths = np.linalg.norm(scorer.embedder.embed(texts).astype(np.float64), axis=1)
    assert lengths.max() > 1.0  # else this test shows nothing
    for text in texts:
        explanation = scorer.explain(text, text)
        assert explanation.similarity.max() <= 1.0
        assert explanation.scores.gas <= 1.0
        assert max(explanation.scores) <= 1.0


def test_the_score_is_the_core_applied_to_the_vectors(scorer: Scorer) -> None:
    reference, generated = PAIRS[8]
    chunks = [
        [sentence.strip().rstrip(".") for sentence in text.split(". ")]
        for text in (reference, generated)
    ]
    vectors = [scorer.embedder.embed(part) for part in chunks]
    whole = scorer.embedder.embed([reference, generated])
    expected = score_embeddings(*vectors, *whole)
    result = scorer.score(reference, generated)
    assert result.scores is not None
    np.testing.assert_allclose(result.scores, expected, atol=1e-6)
    assert (result.n_ref, result.n_gen) == (len(chunks[0]), len(chunks[1]))


LOOSE = [(ref.replace(".", ""), gen.replace(".", "")) for ref, gen in PAIRS]  # no punctuation


@pytest.fixture(scope="module")
def mixed(tiny_bundle: Path, mixed_bundle: Path) -> Iterator[Scorer]:
    """Scores with rules and a learned segmenter from another bundle."""
    with Scorer.open(tiny_bundle, device="cpu", segmenter=mixed_bundle) as opened:
        yield opened


@pytest.fixture(scope="module")
def learned(tiny_bundle: Path, sat_bundle: Path) -> Iterator[Scorer]:
    with Scorer.open(tiny_bundle, device="cpu", segmenter=str(sat_bundle)) as opened:
        yield opened


def test_pairs_with_punctuation_throughout_are_cut_by_rules(scorer: Scorer, mixed: Scorer) -> None:
    for pair in PAIRS[:5]:
        result = mixed.score(*pair)
        assert result.segmenter == scorer.score(*pair).segmenter == "sentencex"
        assert result.scores == scorer.score(*pair).scores


@pytest.mark.parametrize("which", ["reference", "second reference", "generated", "all", "too long"])
def test_one_text_without_punctuation_sends_the_whole_pair_through_the_model(
    mixed: Scorer, learned: Scorer, which: str
) -> None:
    """Texts of a pair, punctuated or stripped, so that equal contents are cut alike."""
    (reference, generated), (loose_reference, loose_generated) = PAIRS[8], LOOSE[8]
    pair: tuple[str | list[str], str] = {
        "reference": (loose_reference, generated),
        "second reference": ([reference, loose_reference], generated),
        "generated": (reference, loose_generated),
        "all": (loose_reference, loose_generated),
        "too long": (reference, "a man walks. " + "he runs " * 60 + "."),
    }[which]  # type: ignore[assignment]
    result = mixed.score(*pair)
    assert result.segmenter == "tiny-sat"
    assert result.scores == learned.score(*pair).scores
    assert result.to_dict()["segmenter"] == "tiny-sat"
    if which in ("reference", "generated", "all"):
        assert result.n_ref == len(chunks_by_model(learned, reference))
        assert result.n_gen == len(chunks_by_model(learned, generated))


def chunks_by_model(scorer: Scorer, text: str) -> list[str]:
    [segments] = scorer.segmenter.split([text.translate(str.maketrans("", "", string.punctuation))])
    return [segment for segment in segments if segment.strip()]


def test_chunk_size_joins_the_segments_of_the_model_too(mixed: Scorer, learned: Scorer) -> None:
    reference, generated = LOOSE[8]
    expected = [
        math.ceil(len(chunks_by_model(learned, text)) / 3) for text in (reference, generated)
    ]
    result = mixed.score(reference, generated, chunk_size=3)
    assert [result.n_ref, result.n_gen] == expected
    assert result.n_ref < mixed.score(reference, generated).n_ref


def test_a_text_and_its_copy_without_punctuation_are_cut_alike(mixed: Scorer) -> None:
    for (punctuated, _), (loose, _) in zip(PAIRS[:15], LOOSE[:15], strict=True):
        result = mixed.score(punctuated, loose)
        assert result.n_ref == result.n_gen
        assert result.scores is not None
        assert result.scores.las == pytest.approx(1.0, abs=1e-6)


def test_contractions_are_written_out_before_the_model_sees_them(
    learned: Scorer, calls_of: Watch
) -> None:
    calls = calls_of(Segmenter, "split_learned")
    learned.score("He can't stop: he's there!", "a man sits")
    assert [text for _, texts, *_ in calls for text in texts] == [
        "He cannot stop he is there",
        "a man sits",
    ]


def test_the_texts_of_a_block_are_cut_in_one_call_and_only_once(
    tiny_bundle: Path, mixed_bundle: Path, calls_of: Watch
) -> None:
    calls = calls_of(Segmenter, "split_learned")
    with Scorer.open(tiny_bundle, device="cpu", segmenter=mixed_bundle) as fresh:
        first = fresh.score_many([*LOOSE, *PAIRS])
        assert [len(texts) for _, texts, *_ in calls] == [
            len({text for pair in LOOSE for text in pair})
        ]
        assert fresh.score_many([*LOOSE, *PAIRS]) == first
        assert not any(texts for _, texts, *_ in calls[1:])  # what was cut is kept


def test_rules_split_a_repeated_text_once(tiny_bundle: Path, calls_of: Watch) -> None:
    calls = calls_of(Segmenter, "sentences")
    pairs = [(PAIRS[0][0], generated) for _, generated in PAIRS[:5]]
    with Scorer.open(tiny_bundle, device="cpu") as fresh:
        first = fresh.score_many(pairs)
        assert fresh.score_many(pairs) == first
        assert fresh.score(*pairs[0], chunk_size=3).n_ref < first[0].n_ref
    assert sorted(text for _, text, _ in calls) == sorted({text for pair in pairs for text in pair})


def test_without_memory_rules_split_a_text_every_time(tiny_bundle: Path, calls_of: Watch) -> None:
    calls = calls_of(Segmenter, "sentences")
    with Scorer.open(tiny_bundle, device="cpu", cache_mb=0) as fresh:
        for _ in range(3):
            fresh.score(*PAIRS[0])
    assert [text for _, text, _ in calls] == [*PAIRS[0]] * 3


def test_a_block_ends_at_so_many_pairs_or_characters(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes(pairs: list[tuple[str, str]]) -> list[int]:
        return [len(block) for block in scorer.stream(pairs, lambda pair: pair)]

    monkeypatch.setattr(preparation, "BLOCK_PAIRS", 4)
    assert sizes(PAIRS[:9]) == [4, 4, 1]
    assert sizes([("", "A.")] * 5) == [4, 1]  # pairs with an error count, too
    monkeypatch.setattr(preparation, "BLOCK_CHARACTERS", 2 * sum(map(len, PAIRS[0])))
    assert sizes([PAIRS[0]] * 5) == [2, 2, 1]
    monkeypatch.setattr(preparation, "BLOCK_CHARACTERS", 2 * sum(map(len, PAIRS[0])) + 1)
    assert sizes([PAIRS[0]] * 5) == [3, 2]


def test_every_item_of_a_stream_comes_with_its_own_result_and_evidence(scorer: Scorer) -> None:
    references = [PAIRS[0][0], PAIRS[2][1], PAIRS[1][0]]
    pairs = [
        (references, PAIRS[2][1]),
        ("", "A."),
        PAIRS[3],
        (references[::-1], PAIRS[1][0]),
        PAIRS[4],
    ]
    streamed = list(chain.from_iterable(scorer.stream(enumerate(pairs), itemgetter(1))))
    assert [number for (number, _), _, _ in streamed] == list(range(len(pairs)))
    for (number, pair), result, evidence in streamed:
        if number == 1:
            assert (result.scores, evidence) == (None, None)
            continue
        reference = pair[0] if isinstance(pair[0], str) else pair[0][result.reference_index]
        alone = scorer.explain(reference, pair[1])
        assert (result.n_ref, result.n_gen) == (alone.result.n_ref, alone.result.n_gen)
        assert evidence is not None
        assert result.scores is not None
        assert evidence.gas == result.scores.gas
        assert evidence.chunks[0] == [chunk.text for chunk in alone.reference]
        assert evidence.chunks[1] == [chunk.text for chunk in alone.generated]
        np.testing.assert_array_equal(evidence.similarity, alone.similarity)
        assert alone.scores == result.scores


def test_scores_by_the_model_are_the_same_alone_batched_and_shuffled_to_the_bit(
    tiny_bundle: Path, mixed_bundle: Path
) -> None:
    pairs = [pair for both in zip(LOOSE[:15], PAIRS[:15], strict=True) for pair in both]
    with Scorer.open(tiny_bundle, device="cpu", cache_mb=0, segmenter=mixed_bundle) as fresh:
        alone = [fresh.score(*pair) for pair in pairs]
        assert {result.segmenter for result in alone} == {"sentencex", "tiny-sat"}
        assert fresh.score_many(pairs) == alone
        order = random.Random(1).sample(range(len(pairs)), len(pairs))
        shuffled = fresh.score_many([pairs[i] for i in order])
    assert [shuffled[order.index(i)] for i in range(len(pairs))] == alone


def test_a_bad_pair_does_not_stop_those_of_the_model(mixed: Scorer) -> None:
    results = mixed.score_many([LOOSE[0], ("?!.", "a man"), ("a man", " "), LOOSE[1]])
    assert [result.error for result in results] == [
        None,
        "reference: the text has only punctuation",
        "generated: the text is empty",
        None,
    ]


def test_the_segmenter_can_be_chosen(tiny_bundle: Path, mixed_bundle: Path) -> None:
    with Scorer.open(tiny_bundle, device="cpu", segmenter="rules") as opened:
        assert "|seg:sentencex@" in opened.signature
        assert "|cut:" not in opened.signature
    for bundle, name, says in (
        (tiny_bundle, "learned", "has no learned segmenter"),
        (tiny_bundle, mixed_bundle / "nowhere", "no such folder"),
    ):
        with pytest.raises(BundleError, match=says):
            Scorer.open(bundle, device="cpu", segmenter=name)


@pytest.mark.parametrize("name", ["bundle", "segmenter", "words"])
def test_an_empty_path_is_no_folder(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: the path must not be empty"):
        ScorerConfig(**{name: ""})


def test_the_signature_says_what_may_cut_and_how(
    scorer: Scorer,
    mixed: Scorer,
    learned: Scorer,
    tiny_bundle: Path,
    sat_bundle: Path,
    tmp_path: Path,
) -> None:
    def fields(opened: Scorer) -> dict[str, str]:
        return dict(field.split(":", 1) for field in opened.signature.split("|")[1:])

    rules, model = fields(scorer)["seg"], fields(learned)["seg"]
    assert model.startswith("tiny-sat@")
    assert fields(mixed)["seg"] == f"{rules}+{model}"
    assert fields(learned)["cut"] == fields(mixed)["cut"] == "0.25/64/fp32"
    short = learned.score_short("a man walks", "a man runs")
    assert "|seg:none|emb:" in short.signature
    assert (short.segmenter, short.to_dict()["segmenter"]) == (None, None)


def test_scores_are_the_same_alone_batched_and_shuffled_to_the_bit(tiny_bundle: Path) -> None:
    # No memory between calls: every score is computed from the texts.
    with Scorer.open(tiny_bundle, device="cpu", cache_mb=0) as fresh:
        alone = [fresh.score(*pair).scores for pair in PAIRS]
        batched = [result.scores for result in fresh.score_many(PAIRS)]
        order = random.Random(1).sample(range(len(PAIRS)), len(PAIRS))
        shuffled = fresh.score_many([PAIRS[i] for i in order])
    assert batched == alone
    assert [shuffled[order.index(i)].scores for i in range(len(PAIRS))] == alone


@pytest.mark.parametrize("aggregate", ["max", "mean"])
def test_the_order_of_references_changes_no_number(scorer: Scorer, aggregate: str) -> None:
    zeros = 0
    for i in range(12):
        # Two chunks against another number of chunks are 0 by definition.
        references = [story(3 * i + k, (1, 3, 4, 5)[k] + i % 2 * k) for k in range(4)]
        results = [
            scorer.score(list(order), story(70 + i, 2 + i % 2 * 3), aggregate=aggregate)
            for order in permutations(references)
        ]
        expected = results[0].to_dict() | {"reference_index": None}
        assert all(result.to_dict() | {"reference_index": None} == expected for result in results)
        if aggregate == "max":
            winners = {
                order[result.reference_index]
                for order, result in zip(permutations(references), results, strict=True)
            }
            assert len(winners) == 1
        zeros += results[0].vcs == 0
    assert zeros >= 5  # ties at 0 are what is tested


def test_among_references_with_vcs_zero_the_margin_decides_before_gas(scorer: Scorer) -> None:
    generated = story(2, 2)
    references = [f"{generated} {story(43, 9)}", story(43, 1)]
    single = [scorer.score(reference, generated).scores for reference in references]
    assert single[0] is not None
    assert single[1] is not None
    assert single[0].vcs == single[1].vcs == 0
    assert single[0].margin > single[1].margin
    assert single[0].gas < single[1].gas
    for order in ((0, 1), (1, 0)):
        best = scorer.score([references[i] for i in order], generated)
        assert best.scores == single[0]
        assert best.reference_index == order.index(0)


def test_several_references_take_the_best_and_say_which(scorer: Scorer) -> None:
    references = [PAIRS[0][0], PAIRS[1][0], PAIRS[2][1]]
    result = scorer.score(references, PAIRS[2][1])
    single = [scorer.score(reference, PAIRS[2][1]).vcs for reference in references]
    assert result.reference_index == 2
    assert result.n_references == 3
    assert result.vcs == max(single)
    assert result.to_dict()["reference_index"] == 2
    mean = scorer.score(references, PAIRS[2][1], aggregate="mean")
    best = scorer.score(references[2], PAIRS[2][1])
    assert (mean.n_ref, result.n_ref, mean.reference_index) == (best.n_ref, best.n_ref, 2)
    scores = [scorer.score(reference, PAIRS[2][1]).scores for reference in references]
    assert mean.scores == pytest.approx(np.mean(scores, axis=0), abs=1e-12)
    assert "|refs:mean|" in mean.signature
    explanation = scorer.explain(references, PAIRS[2][1])
    assert list(explanation.by_reference) == scores
    assert explanation.scores == scores[2]


def test_one_reference_in_a_list_is_one_reference(scorer: Scorer) -> None:
    assert scorer.score([PAIRS[0][0]], PAIRS[0][1]) == scorer.score(*PAIRS[0])


def test_short_texts_are_compared_word_by_word(scorer: Scorer) -> None:
    result = scorer.score_short("a man opens the red door", "the old man opens a door")
    assert (result.n_ref, result.n_gen) == (4, 4)  # man opens red door; old man opens door
    assert "|chunk:word|" in result.signature
    assert "|seg:none|" in result.signature


@pytest.mark.parametrize(
    ("reference", "generated", "says"),
    [
        ("", "A.", "^reference: the text is empty"),
        ("A.", " ", "^generated: the text is empty"),
        (None, "A.", "^reference: the text is null"),
        ("A.", 3, "^generated: the text must be a string, not int"),
        ([], "A.", "^reference: the list is empty"),
        (["A.", ""], "A.", r"^reference\[1\]: the text is empty"),
        (["A.", "a man b"], "A.", r"^reference\[1\]: the text has no sentence punctuation"),
        ("?!. ...", "A.", "^reference: the text has only punctuation"),
        ("A.", "a man walks", "^generated: the text has no sentence punctuation"),
    ],
)
def test_a_pair_that_cannot_be_scored_names_its_text(
    scorer: Scorer, reference: object, generated: object, says: str
) -> None:
    with pytest.raises(TextError, match=says):
        scorer.score(reference, generated)  # type: ignore[arg-type]


def test_one_bad_pair_does_not_stop_the_rest(scorer: Scorer) -> None:
    bad = [("", "A."), ("A.", None), "no pair", "AB", ("one",), None]
    results = scorer.score_many([PAIRS[0], *bad, PAIRS[1]])  # type: ignore[list-item]
    assert [result.error is None for result in results] == [True] + [False] * len(bad) + [True]
    assert results[0].scores == scorer.score(*PAIRS[0]).scores
    assert math.isnan(results[1].vcs)
    assert results[1].to_dict() == {
        "error": "reference: the text is empty",
        "signature": scorer.signature,
    }


def test_references_and_predictions_in_place_of_pairs(scorer: Scorer, tiny_bundle: Path) -> None:
    references: list[str | list[str]] = [PAIRS[0][0], [PAIRS[1][0], PAIRS[2][0]]]
    predictions = [PAIRS[0][1], PAIRS[1][1]]
    expected = scorer.score_many(list(zip(references, predictions, strict=True)))
    assert scorer.score_many(references=references, predictions=iter(predictions)) == expected
    for wrong in (
        {},
        {"references": references},
        {"predictions": predictions},
        {"pairs": PAIRS, "references": references},
        {"pairs": ["A.", "B."]},
        {"pairs": "A. B."},
        {"references": "A.", "predictions": "B."},
    ):
        with pytest.raises(TypeError, match="pairs|references and predictions"):
            scorer.score_many(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="predictions: 1 texts, but there are 2 references"):
        scorer.score_many(references=references, predictions=predictions[:1])
    one = {"bundle": tiny_bundle, "device": "cpu"}
    assert vcs_runtime.score(references=references, predictions=predictions, **one) == expected
    assert vcs_runtime.score(references=PAIRS[0][0], predictions=PAIRS[0][1], **one) == expected[0]
    with pytest.raises(TextError, match="the text is empty"):
        vcs_runtime.score(references="A.", predictions="", **one)
    assert isinstance(expected, list)
    assert "<td>margin</td>" in expected._repr_html_()
    assert expected.mean()["vcs"] == pytest.approx(sum(r.vcs for r in expected) / len(expected))
    with pytest.raises(TypeError, match="swapped"):
        scorer.score_many(references=predictions, predictions=[[text] for text in predictions])  # type: ignore[list-item]
    assert scorer.score_many([]) == scorer.score_many(references=[], predictions=[]) == []


def test_what_a_notebook_shows_is_one_line_without_addresses(scorer: Scorer) -> None:
    zero = scorer.score(story(1, 3), story(2, 2))
    assert re.fullmatch(
        r"Result\(vcs=0.000, margin=\S+, gas=\S+, las=\S+, nas=\S+, flags=\('order.*\)", repr(zero)
    )
    assert zero._repr_html_().count("<tr>") == 2
    explanation = scorer.explain(story(1, 3), story(2, 2))
    assert repr(explanation) == f"<Explanation of {zero}, 3 and 2 chunks>"
    assert type(figures.summary(explanation)).__name__ == "Figure"
    said = 'A <b>bold</b> man, "half-asleep".  He sat; he left.'
    explanation = scorer.explain(said, story(2, 2))
    html = explanation._repr_html_()
    assert explanation.written[0] == ('A <b>bold</b> man, "half-asleep".', "He sat; he left.")
    assert "<td>A &lt;b&gt;bold&lt;/b&gt; man, &quot;half-asleep&quot;.</td>" in html
    assert "<b>bold" not in html
    assert html.count("<tr>") == 2 + 2 + 4


def test_tables_have_the_margin_beside_vcs(scorer: Scorer) -> None:
    results = scorer.score_many([(story(1, 3), story(2, 2)), ("", "A.")])
    assert [*results.to_pandas().columns[:2]] == ["vcs", "margin"]
    assert repr(scorer) == f"<Scorer {scorer.signature}>"
    shown = dir(vcs_runtime)
    assert {"report", "training", "compat", "score"} <= set(shown)
    assert all(hasattr(vcs_runtime, name) for name in shown)
    assert "Any" not in shown


def test_results_become_tables_of_libraries_that_are_not_ours(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = scorer.score_many([PAIRS[0], ("", "A.")])
    for name in ("pandas", "polars"):
        module = SimpleNamespace(DataFrame=lambda rows, **_: rows)
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
        assert getattr(results, f"to_{name}")() == [result.to_dict() for result in results]
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
        with pytest.raises(MissingExtraError, match=f"install `{name}`"):
            getattr(results, f"to_{name}")()


def test_a_result_answers_every_score_by_name(scorer: Scorer) -> None:
    result = scorer.score(*PAIRS[3])
    assert result.scores is not None
    [failed] = scorer.score_many([("", "A.")])
    for name, value in result.scores.to_dict().items():
        assert getattr(result, name) == value
        assert math.isnan(getattr(failed, name))
    with pytest.raises(AttributeError):
        result.vsc  # type: ignore[attr-defined]  # noqa: B018
    assert pickle.loads(pickle.dumps(result)) == result


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_change_nothing(scorer: Scorer, line_end: str) -> None:
    # A paragraph without a full stop ends at an empty line.
    reference, generated = (text.replace(". ", "\n\n", 2) for text in PAIRS[7])
    expected = scorer.score(reference, generated)
    other = scorer.score(reference.replace("\n", line_end), generated.replace("\n", line_end))
    assert other == expected
    assert expected.n_ref > 3


def test_short_texts_of_stop_words_alone_are_refused(scorer: Scorer) -> None:
    with pytest.raises(TextError, match="^generated: the text has only punctuation and stop words"):
        scorer.score_short("a man", "it is the")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"chunk_size": 0}, "^chunk_size"),
        ({"aggregate": "best"}, "^aggregate must be one of 'max', 'mean'"),
        ({"params": {"lct": 1}}, "^params must be a Params"),
    ],
)
def test_bad_options_are_named(scorer: Scorer, options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        scorer.score("A.", "B.", **options)  # type: ignore[arg-type]


def test_the_signature_names_everything_a_score_depends_on(scorer: Scorer) -> None:
    plain = scorer.signature
    fields = dict(field.split(":", 1) for field in plain.split("|")[1:])
    assert list(fields) == "def chunk lct ctx seg emb long prec engine v".split()
    assert re.fullmatch("tiny-bert@[0-9a-f]{4}", fields["emb"])
    assert fields["ctx"] == "0.6/4"
    assert fields["long"] == "window_mean/32"
    assert fields["engine"] == "ort-cpu"
    other = Options(
        2,
        Params(lct=0.5, lct_penalty="excess", regularizer="length", small_text="reference"),
        "mean",
    )
    [result] = scorer.iter_scores([PAIRS[0]], other)
    for (
        field
    ) in "chunk:2 lct:0.5 penalty:excess reg:length/0/0.5 small:reference refs:mean".split():
        assert field in result.signature.split("|")


def test_each_distinct_text_is_embedded_once(scorer: Scorer, calls_of: Watch) -> None:
    calls = calls_of(type(scorer.embedder), "prepare")
    shared = story(900, 8)
    scorer.score_many([(shared, story(901 + i)) for i in range(5)])
    scorer.score(shared, story(901))
    seen = [text for _, texts in calls for text in texts]
    assert seen.count(shared) == 1
    assert len(seen) == len(set(seen))


def test_a_scorer_may_be_used_from_several_threads(scorer: Scorer) -> None:
    expected = [scorer.score(*pair).scores for pair in PAIRS]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda pair: scorer.score(*pair).scores, PAIRS * 3))
    assert results == expected * 3


def test_missing_devices_and_unknown_device_names_are_refused(tiny_bundle: Path) -> None:
    with pytest.raises(DeviceError, match="CUDAExecutionProvider"):
        Scorer.open(tiny_bundle, device="cuda:0")
    with pytest.raises((DeviceError, MissingExtraError), match="tensorrt"):
        Scorer.open(tiny_bundle, device="tensorrt:0")
    for name in ("gpu", "cpu:0", "cuda:x", "", None):
        with pytest.raises(ValueError, match="^device must be"):
            Scorer.open(tiny_bundle, device=name)  # type: ignore[arg-type]


def test_auto_says_what_it_chose(tiny_bundle: Path) -> None:
    with Scorer.open(tiny_bundle, device="auto") as auto:
        assert auto.embedder.device.reason.startswith("auto: ")
