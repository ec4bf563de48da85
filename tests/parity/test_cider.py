"""CIDEr against pycocoevalcap: the score by its class, the words by its Java program."""

from __future__ import annotations

import shutil
import warnings

import pytest

from support.stories import story
from support.treebank import WRITTEN
from vcs_experiments.metrics.cider import Cider, ptb_words
from vcs_experiments.metrics.corpus import Corpus

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pycocoevalcap.cider.cider import Cider as Original
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

CORPUS = [
    tuple(story(10 * item + k, 1 + (item + k) % 3) for k in range(1 + item % 4))
    for item in range(40)
]
GENERATED = [
    *(story(10 * item + (item % 5), 1 + item % 2) for item in range(37)),
    "a man",  # no n-grams of three words
    "and and and and and and the the the",  # more often than any reference has it
    CORPUS[39][0],
]


@pytest.mark.parametrize("first", [1, None])
def test_scores_are_those_of_pycocoevalcap(first: int | None) -> None:
    corpus = Corpus.of(CORPUS).first(first)
    references = {item: [*texts[:first]] for item, texts in enumerate(CORPUS)}
    words = {
        item: [" ".join(ptb_words(text)) for text in texts] for item, texts in references.items()
    }
    mean, wanted = Original().compute_score(
        words, {item: [" ".join(ptb_words(text))] for item, text in enumerate(GENERATED)}
    )
    cider = Cider(corpus)
    scores = [cider.score(references[item], text) for item, text in enumerate(GENERATED)]
    assert scores == pytest.approx(wanted.tolist(), rel=1e-12, abs=1e-12)
    assert sum(scores) / len(scores) == pytest.approx(float(mean))
    assert max(scores) > 5 > 1 > min(scores)


@pytest.mark.skipif(not shutil.which("java"), reason="the tokenizer of pycocoevalcap needs Java")
def test_words_are_those_of_the_java_program() -> None:
    texts = [*WRITTEN, *(story(item, 9) for item in range(50))]
    found = PTBTokenizer().tokenize({item: [{"caption": text}] for item, text in enumerate(texts)})
    assert [" ".join(ptb_words(text)) for text in texts] == [
        found[item][0] for item in range(len(texts))
    ]
