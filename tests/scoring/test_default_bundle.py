"""The embedded default as `vcs-runtime fetch default` builds it (`make test` runs that first): text
without sentence punctuation is cut where its sentences end, and scored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files

import pytest

from vcs_runtime import Scorer
from vcs_runtime.text.cleaning import strip_punctuation

STORY = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
TEXTS = [STORY["reference"], *(version["text"] for version in STORY["versions"])]


@pytest.fixture(scope="module")
def default() -> Iterator[Scorer]:
    with Scorer.open("default", device="cpu") as scorer:
        yield scorer


@pytest.mark.parametrize(("lower", "least"), [(False, 0.9), (True, 0.7)])
def test_the_demos_sentences_are_found_without_their_punctuation(
    default: Scorer, lower: bool, least: float
) -> None:
    hits = predicted = expected = 0
    for text in TEXTS:
        sentences = [
            strip_punctuation(sentence).split() for sentence in default.segmenter.split([text])[0]
        ]
        stripped = strip_punctuation(text)
        pieces = default.segmenter.split([stripped.lower() if lower else stripped])[0]
        ends, cuts = (
            {sum(map(len, part[:i])) for i in range(1, len(part))}
            for part in (sentences, [piece.split() for piece in pieces])
        )
        hits = hits + len(ends & cuts)
        predicted = predicted + len(cuts)
        expected = expected + len(ends)
    assert 2 * hits / (predicted + expected) >= least


def test_a_pair_is_cut_by_one_segmenter_and_says_which(default: Scorer) -> None:
    reference = STORY["reference"]
    stripped = strip_punctuation(reference)
    by_rules, mixed, both = (
        default.score(*pair)
        for pair in ((reference, reference), (reference, stripped), (stripped, stripped.lower()))
    )
    assert by_rules.segmenter == "sentencex"
    assert mixed.segmenter == both.segmenter == "boundary-en"
    assert mixed.scores is not None
    assert mixed.scores.las == pytest.approx(1.0, abs=1e-6)  # the same chunks on both sides
    assert "seg:sentencex@" in mixed.signature
    assert "+boundary-en@" in mixed.signature


def test_order_counts_in_text_without_punctuation(default: Scorer) -> None:
    sentences = default.segmenter.split([STORY["reference"]])[0]
    there, back = (
        strip_punctuation(" ".join(map(str.strip, part))) for part in (sentences, sentences[::-1])
    )
    assert default.score(there, there).vcs > 0.99
    assert default.score(there, back).vcs < 0.3
