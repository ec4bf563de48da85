"""Metrics by hand, statistics by brute force, and VCS by the scorer."""

from __future__ import annotations

import ast
import itertools
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from support.processes import run_python
from support.stories import story
from vcs_experiments import statistics
from vcs_experiments.agreement import agreement
from vcs_experiments.metrics.lexical import lexical_scores
from vcs_experiments.metrics.scoring import Job, KnownMetrics, LongMetrics
from vcs_numba import Params
from vcs_runtime import Scorer
from vcs_runtime.comparing.statistics import holm, paired_difference
from vcs_runtime.errors import TextError
from vcs_runtime.scoring.block_scores import align_all
from vcs_runtime.scoring.options import Options


def scores(reference: str, generated: str) -> dict[str, float]:
    return lexical_scores([reference], generated, meteor=False)


def test_bleu_by_hand() -> None:
    # 3 of 4 words are in the reference, 5 words long: precision 3/4, brevity penalty exp(1 - 5/4).
    found = scores("The dog, runs home fast!", "the DOG runs away.")
    assert found["BLEU-1"] == pytest.approx(3 / 4 * math.exp(1 - 5 / 4))
    # n-grams that match: 3/4, 2/3, 1/2, and none of one: method1 counts 0.1.
    expected = math.exp(1 - 5 / 4) * (3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25
    assert found["BLEU-4"] == pytest.approx(expected)


def test_a_dash_within_words_is_no_word_of_its_own() -> None:
    # As NLTK cut before 3.10, when the scores were published: "door—she" is one token.
    assert scores("at the door—she waits", "at the door she waits")["BLEU-1"] == pytest.approx(
        3 / 5 * 1.0
    )
    assert scores("it ’s here", "it’s here")["BLEU-1"] > 0.5  # quotes are cut off, as ever


def test_rouge_by_hand_with_stems_and_lines() -> None:
    found = scores("The dogs ran home. A cat sleeps.", "A cat slept. The dog ran home.")
    # Stemmed unigrams: the dog ran home a cat are shared (6 of 7); "sleep" and "slept" differ.
    assert found["ROUGE-1"] == pytest.approx(6 / 7)
    assert found["ROUGE-L"] == pytest.approx(4 / 7)  # in one line the order counts
    assert found["ROUGE-Lsum"] == pytest.approx(6 / 7)  # line by line it does not
    assert found["ROUGE-4"] == pytest.approx(1 / 4)


def test_of_several_references_bleu_takes_all_and_rouge_the_best() -> None:
    references = ["a dog runs", "the cat sleeps here"]
    found = lexical_scores(references, "the cat runs", meteor=False)
    # Each word is in one of them; the nearest length is 3.
    assert found["BLEU-1"] == pytest.approx(1.0)
    assert found["ROUGE-1"] == max(scores(text, "the cat runs")["ROUGE-1"] for text in references)


def test_texts_without_a_word_score_zero() -> None:
    assert set(scores("a dog", "...").values()) == {0.0}


def meteor(data: Path) -> Any:
    """What a process makes of METEOR with the corpora in `data`: NLTK keeps what it has loaded.

    Of the folders in which NLTK looks only the first stays, `NLTK_DATA`: this machine's may be
    full.
    """
    script = (
        "import nltk\n"
        "del nltk.data.path[1:]\n"
        "from vcs_experiments.metrics import lexical\n"
        "there = lexical.has_meteor()\n"
        "pairs = ('The dogs ran. Rain fell.', 'the dog ran'), (\"'the dogs\", 'the dogs')\n"
        "print([lexical.lexical_scores([a], b, meteor=there).get('METEOR') for a, b in pairs])"
    )
    done = run_python("-c", script, env={**os.environ, "NLTK_DATA": str(data)}, check=True)
    return ast.literal_eval(done.stdout)


@pytest.mark.slow
def test_meteor_where_its_corpora_are(tmp_path: Path) -> None:
    wordnet, punkt = tmp_path / "corpora/wordnet", tmp_path / "tokenizers/punkt_tab/english"
    kinds = [
        f"{kind}.{part}" for kind in ("data", "index") for part in ("noun", "verb", "adj", "adv")
    ]
    exceptions = [f"{part}.exc" for part in ("noun", "verb", "adj", "adv")]
    for folder, names in (
        (wordnet, [*kinds, *exceptions, "cntlist.rev", "index.sense", "lexnames"]),
        (punkt, ["collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"]),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    # Without a word in WordNet: stems. 3 words of 3, and of 7 ("." counts), match in one chunk.
    # NLTK weighs recall by .9: P R / (.9 P + .1 R).
    mean = (3 / 3) * (3 / 7) / (0.9 * 3 / 3 + 0.1 * 3 / 7)
    expected = mean * (1 - 0.5 * (1 / 3) ** 3)
    # A quotation mark stays at its word, as before NLTK 3.10: 1 word of 2 matches.
    assert meteor(tmp_path) == [pytest.approx(expected), pytest.approx(0.5 * (1 - 0.5))]
    shutil.rmtree(wordnet)
    assert meteor(tmp_path) == [None, None]


@pytest.mark.slow
def test_lexical_scores_are_the_same_in_other_processes() -> None:
    jobs = [Job(str(i), (story(i),), story(i + 50)) for i in range(5)]
    alone, beside = KnownMetrics(1), KnownMetrics(2)
    try:
        waiting = [beside.start(job) for job in jobs]
        assert [scores() for scores in waiting] == [alone.start(job)() for job in jobs]
        assert alone.signature == beside.signature
        assert "bleu:nltk@" in alone.signature
    finally:
        beside.close()


def test_realigned_scores_are_the_scorers_to_the_bit(tiny_bundle: Path, mixed_bundle: Path) -> None:
    pairs = [(story(i), story(i + 50)) for i in range(6)]
    bare = [(story(i).replace(".", ""), story(i + 50)) for i in range(3)]
    with Scorer.open(tiny_bundle, device="cpu", segmenter=mixed_bundle) as scorer:
        for chunk_size, lct in itertools.product((1, 2), (0.0, 0.5)):
            found = scorer.iter_evidence(pairs + bare, Options(chunk_size))
            rows = align_all([evidence for _, evidence in found if evidence], Params(lct=lct))
            expected = scorer.score_many(
                pairs + bare, chunk_size=chunk_size, params=Params(lct=lct)
            )
            assert [tuple(row) for row in rows.tolist()] == [
                tuple(result.scores or ()) for result in expected
            ]


def test_a_pair_that_cannot_be_cut_is_an_error_and_the_others_are_scored(scorer: Scorer) -> None:
    metrics = LongMetrics(scorer, KnownMetrics(1), lcts=(0.0, 1.0))
    jobs = [
        Job("1", (story(1),), story(2)),
        Job("2", (story(1),), "no end of a sentence"),
        Job("3", (story(1),), "..."),
    ]
    (_, first), (_, second), (_, third) = metrics.score(jobs)
    assert isinstance(first, dict)
    assert tuple(sorted(first)) == tuple(sorted(metrics.columns))
    assert isinstance(second, TextError)
    assert "no sentence punctuation" in str(second)
    assert isinstance(third, TextError)
    result = scorer.score(story(1), story(2), params=Params(lct=1.0))
    assert first["VCS_LCT1"] == result.vcs
    assert first["Cosine"] == result.scores.gas  # type: ignore[union-attr]


def test_of_several_references_each_metrics_best_counts(scorer: Scorer) -> None:
    metrics = LongMetrics(scorer, KnownMetrics(1), lcts=(0.0,))
    references = tuple(story(i) for i in range(4))
    [(_, best)] = metrics.score([Job("1", references, story(9))])
    single = [scorer.score(reference, story(9)) for reference in references]
    assert isinstance(best, dict)
    assert best["VCS_LCT0"] == max(result.vcs for result in single)
    assert best["LAS"] == max(result.scores.las for result in single if result.scores)


def test_classification_by_hand() -> None:
    found = statistics.classification(
        np.array([0.9, 0.4, 0.5, 0.2, 0.4]), np.array([True, True, False, False, False])
    )
    assert found == {
        "valid": 2,
        "invalid": 3,
        "accuracy": 3 / 5,
        "precision": 1 / 2,
        "recall": 1 / 2,
        "F1": 1 / 2,
        "AUC": pytest.approx((3 + 0 + 1 + 0.5) / 6),
    }
    none = statistics.classification(np.array([0.1, 0.2]), np.array([True, True]))
    assert (none["precision"], none["F1"]) == (0.0, 0.0)
    assert math.isnan(none["AUC"])


def test_the_permutation_test_is_exact_where_all_signs_can_be_tried() -> None:
    draw = np.random.default_rng(1)
    first, second = draw.normal(0.3, 1, 8), draw.normal(0, 1, 8)
    d = first - second
    all_signs = np.array(list(itertools.product((1, -1), repeat=8)))
    means = (all_signs * d).mean(axis=1)
    # SciPy's two-sided p-value: twice the smaller tail.
    tail = min((means >= d.mean() - 1e-12).mean(), (means <= d.mean() + 1e-12).mean())
    found = paired_difference(first, second)
    assert found.p_permutation == pytest.approx(min(1.0, 2 * tail))
    assert found.mean == pytest.approx(d.mean())
    assert found.low < d.mean() < found.high


def test_equal_scores_differ_by_nothing_and_one_pair_has_no_interval() -> None:
    base = np.random.default_rng(2).normal(0, 1, 60)
    same = paired_difference(base, base)
    assert (same.mean, same.p_bootstrap, same.p_permutation) == (0.0, 1.0, 1.0)
    assert math.isnan(paired_difference(base[:1], base[1:2]).low)


@pytest.mark.parametrize("n", [5, 11, 60, 1000])
def test_the_paired_tests_draw_as_scipy_does(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(n)
    first, second = draw.normal(0.3 / math.sqrt(n), 1, n), draw.normal(0, 0.1, n)
    found = paired_difference(first, second, resamples=300, seed=7)
    rng = (np.random.default_rng(7) for _ in range(2))
    theirs = scipy.stats.permutation_test(
        (first - second,), np.mean, permutation_type="samples", n_resamples=300, rng=next(rng)
    )
    assert found.p_permutation == pytest.approx(theirs.pvalue, abs=1e-15)
    drawn = scipy.stats.bootstrap(
        (first - second,), np.mean, n_resamples=300, method="percentile", rng=next(rng)
    )
    assert [found.low, found.high] == pytest.approx(list(drawn.confidence_interval), abs=1e-15)
    far = np.abs(drawn.bootstrap_distribution - drawn.bootstrap_distribution.mean()) >= abs(
        found.mean
    )
    assert found.p_bootstrap == pytest.approx((far.sum() + 1) / 301)
    # Whatever memory there is.
    monkeypatch.setattr("vcs_runtime.comparing.statistics._DRAWN", 7 * n)
    assert paired_difference(first, second, resamples=300, seed=7) == found


def test_holm_by_hand() -> None:
    # Times 4, 3, 2, 1 from the smallest on, never below the one before, never above 1.
    assert holm(np.array([0.04, 0.01, 0.03, 0.005])) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm(np.array([0.6, 0.9, 0.7])) == pytest.approx([1.0, 1.0, 1.0])
    assert holm(np.array([0.03])) == pytest.approx([0.03])


def test_kendall_and_spearman_by_hand() -> None:
    first, second = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0])
    # 6 pairs: 5 concordant, 1 tied on one side: tau-b = 5 / sqrt(5 * 6).
    assert statistics.kendall(first, second) == pytest.approx(5 / math.sqrt(30))
    assert statistics.spearman(first, second) == pytest.approx(
        np.corrcoef([1, 2.5, 2.5, 4], [1, 3, 2, 4])[0, 1]
    )
    assert math.isnan(statistics.kendall(first, np.ones(4)))


def test_the_interval_of_kendalls_tau_is_of_means_over_drawn_items() -> None:
    draw = np.random.default_rng(4)
    first, second = draw.normal(size=(2, 5, 20)) + np.arange(5)[:, None] / 4
    for other in (second, second.mean(axis=1)):
        draws = np.random.default_rng(11)
        taus = []
        for _ in range(200):
            items = draws.integers(20, size=20)
            b = other[:, items].mean(axis=1) if other.ndim > 1 else other
            taus.append(scipy.stats.kendalltau(first[:, items].mean(axis=1), b).statistic)
        expected = tuple(np.percentile(taus, [2.5, 97.5]))
        assert expected[0] < expected[1]
        found = statistics.kendall_interval(first, other, resamples=200, seed=11)
        assert found == pytest.approx(expected)
    assert all(
        math.isnan(end) for end in statistics.kendall_interval(np.ones((3, 4)), second[:3, :4])
    )


def test_ratings_are_correlated_rater_by_rater_and_resampled_by_group() -> None:
    scores_ = np.arange(12.0)
    ratings = np.stack([scores_, -scores_, np.r_[scores_[:6], scores_[:6]]], axis=1)
    groups = [str(i // 2) for i in range(12)]
    found = statistics.rated(statistics.kendall, scores_, ratings, groups, resamples=50)
    assert found.by_rater[:2] == (pytest.approx(1.0), pytest.approx(-1.0))
    assert found.mean == pytest.approx(np.mean(found.by_rater))
    assert found.low <= found.mean <= found.high
    alone = statistics.rated(statistics.kendall, scores_, ratings, ["one"] * 12, resamples=20)
    # One group: each resample is the whole.
    assert alone.low == alone.high == pytest.approx(alone.mean)


def test_published_scores_are_compared_with_ours_as_python_rounds_them() -> None:
    """Halves of the third decimal, some of which NumPy would round otherwise."""
    ours = {str(i): {"BLEU": (2 * i + 1) / 2000} for i in range(1000)}
    published = {i: {"BLEU": round(scores["BLEU"], 3)} for i, scores in ours.items()}
    metrics: Any = SimpleNamespace(columns=("BLEU",))
    single, _ = agreement(dict.fromkeys(ours, "all"), ours, published, metrics, "group")
    [(name, pairs, equal, off, *_)] = single.rows
    assert (name, pairs, equal, off) == ("BLEU", 1000, 1000, 0.0)
