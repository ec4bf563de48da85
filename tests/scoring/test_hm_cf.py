"""HM-CF beside VCS: sentences as they stand, several references, files, comparisons and reports."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from support import clip_cc
from support.command_line import Finished
from support.stories import story, write_pairs
from vcs_numba import HmCf
from vcs_runtime import BundleError, MissingExtraError, Options, Scorer, ScorerConfig, TextError

ALSO = ["hm-cf"]


class Letters:
    """An embedder that counts characters, so that punctuation matters; it notes all texts."""

    identity = "letters@1"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: list[str]) -> npt.NDArray[np.float64]:
        self.seen += texts
        counts = [[text.count(chr(code)) for code in range(33, 127)] for text in texts]
        return np.array(counts, np.float64) + 1e-3


class Bars:
    """A segmenter that cuts at bars, and refuses a text with a word."""

    identity = "bars@1"

    def split(self, texts: list[str]) -> list[list[str]]:
        if any("refused" in text for text in texts):
            raise TextError("no")
        return [text.split("|") for text in texts]


def unit(texts: list[str]) -> npt.NDArray[np.float64]:
    vectors = Letters().embed(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_it_is_the_benchmarks_number_of_the_sentences_as_they_stand() -> None:
    embedder = Letters()
    reference = " He isn't here | Dogs bark, twice! |It rains..."
    generated = "It's raining|| A dog barks. "
    with Scorer.open(embedder=embedder, segmenter=Bars()) as scorer:
        result = scorer.score(reference, generated, also=ALSO)
    sentences = [
        ["He isn't here", "Dogs bark, twice!", "It rains..."],
        ["It's raining", "A dog barks."],
    ]
    assert {*sentences[0], *sentences[1], reference, generated} <= set(embedder.seen)
    expected = clip_cc.hm_cf(*map(unit, sentences), *unit([reference, generated]))
    assert result.further == pytest.approx(HmCf(**expected), abs=1e-6)
    assert (result.hm_cf, result.coarse) == (result.further.hm_cf, result.gas)  # type: ignore[union-attr]
    assert len(embedder.seen) == len(set(embedder.seen))


def test_of_several_references_the_best_or_the_mean_counts_in_any_order(scorer: Scorer) -> None:
    references, generated = [story(1, 4), story(2, 5), story(3, 6)], story(2, 3)
    single = [scorer.score(reference, generated, also=ALSO).further for reference in references]
    # Sentences, whatever the chunks of VCS are.
    assert scorer.score(references[0], generated, chunk_size=3, also=ALSO).further == single[0]
    best = max(own.hm_cf for own in single if own)
    results = [scorer.score(refs, generated, also=ALSO) for refs in (references, references[::-1])]
    assert results[0].further == results[1].further
    assert results[0].hm_cf == best
    means = [
        scorer.score(refs, generated, aggregate="mean", also=ALSO)
        for refs in (references, references[::-1])
    ]
    assert means[0].further == means[1].further
    assert means[0].further == pytest.approx(
        np.mean([own for own in single if own], axis=0), abs=1e-15
    )


def test_a_text_that_a_segmenter_refuses_is_named_and_takes_no_other_with_it() -> None:
    with Scorer.open(embedder=Letters(), segmenter=Bars()) as scorer:
        bad, good = scorer.score_many([("a|b", "refused"), ("a|b", "a|c")], also=ALSO)
    assert bad.error == "generated: segmenter bars@1: no"
    assert math.isnan(bad.hm_cf)
    assert good.hm_cf > 0


def test_a_text_without_punctuation_is_split_by_the_learned_segmenter(
    tiny_bundle: Path, mixed_bundle: Path
) -> None:
    with Scorer.open(tiny_bundle, "cpu", segmenter=mixed_bundle) as scorer:
        loose = story(3, 5).replace(".", "")
        [learned] = scorer.segmenter.split_learned([loose])
        result = scorer.score(story(4, 3), loose, also=ALSO)
        sentences = [
            story(4, 3).replace(". ", ".|").split("|"),
            [s.strip() for s in learned if s.strip()],
        ]
        vectors = [scorer.embedder.embed(part) for part in (*sentences, [story(4, 3), loose])]
        expected = clip_cc.hm_cf(vectors[0], vectors[1], *vectors[2])
        assert result.further == pytest.approx(HmCf(**expected), abs=1e-6)


def test_what_cannot_be_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match="also must be one of 'hm-cf', 'substitution', not 'bleu'"):
        Options(also=["bleu"])
    with pytest.raises(ValueError, match="not the string 'hm-cf'"):
        Options(also="hm-cf")


def test_pairs_that_count_as_nothing_count_in_its_mean(
    score: Callable[..., Finished], tmp_path: Path
) -> None:
    rows = [
        {"id": i, "reference": story(i), "generated": story(i + 9) if i else ""} for i in range(3)
    ]
    write_pairs(tmp_path / "p.jsonl", rows)
    means = {}
    for failed in ("skip", "zero"):
        done = score(tmp_path / "p.jsonl", "--also", "hm-cf", "--on-error", failed, "--json")
        means[failed] = json.loads(done.stdout)["scores"]["hm_cf"]["mean"]
    assert means["zero"] == pytest.approx(means["skip"] * 2 / 3)


PUNKT = {
    "collocations.tab": "",
    "sent_starters.txt": "",
    "abbrev_types.txt": "dr",
    "ortho_context.tab": "",
}


def test_punkt_splits_with_nltks_data(
    monkeypatch: pytest.MonkeyPatch, tiny_bundle: Path, tmp_path: Path
) -> None:
    nltk = pytest.importorskip("nltk")
    folder = tmp_path / "tokenizers/punkt_tab/english"
    folder.mkdir(parents=True)
    for name, content in PUNKT.items():
        (folder / name).write_text(content)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    config = ScorerConfig(segmenter="punkt", embedder=Letters())
    assert config.absolute().segmenter == "punkt"
    with Scorer.from_config(config) as scorer:
        result = scorer.score("Dr. Hill sleeps. He snores.", "no end at all", also=ALSO)
    assert (result.n_ref, result.n_gen) == (2, 1)
    assert f"seg:punkt@nltk-{nltk.__version__}" in result.signature
    sentences = [["Dr. Hill sleeps.", "He snores."], ["no end at all"]]
    expected = clip_cc.hm_cf(
        *map(unit, sentences), *unit(["Dr. Hill sleeps. He snores.", "no end at all"])
    )
    assert result.further == pytest.approx(HmCf(**expected), abs=1e-6)
    with Scorer.open(tiny_bundle, "cpu", segmenter="punkt") as own:  # with a bundle's embedder, too
        assert own.score("Dr. Hill sleeps. He snores.", "no end at all").n_ref == 2


def test_punkt_without_its_data_or_without_nltk_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nltk = pytest.importorskip("nltk")
    config = ScorerConfig(segmenter="punkt", embedder=Letters())
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(BundleError, match="nltk.downloader punkt_tab"):
        Scorer.from_config(config)
    monkeypatch.setitem(sys.modules, "nltk.tokenize.punkt", None)
    with pytest.raises(MissingExtraError, match="vcs-runtime\\[experiments\\]"):
        Scorer.from_config(config)
