"""BLEU, ROUGE and METEOR as the authors computed them, with the libraries that they used.

BLEU: NLTK's `sentence_bleu`, smoothing `method1`, on lower-cased word tokens without ASCII
punctuation. ROUGE: `rouge_score`, f-measure, stemmed, a newline after each sentence end (for
ROUGE-Lsum). METEOR: NLTK's `meteor_score` on lower-cased word tokens; needs the corpora `wordnet`
and `punkt_tab`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from vcs_runtime.text.cleaning import strip_punctuation

METRICS = ("BLEU-1", "BLEU-4", "ROUGE-1", "ROUGE-4", "ROUGE-L", "ROUGE-Lsum")
METEOR = "METEOR"
_WEIGHTS = {"BLEU-1": (1.0, 0.0, 0.0, 0.0), "BLEU-4": (0.25, 0.25, 0.25, 0.25)}
_ROUGE = {"ROUGE-1": "rouge1", "ROUGE-4": "rouge4", "ROUGE-L": "rougeL", "ROUGE-Lsum": "rougeLsum"}
_SENTENCE_END = re.compile(r"([.!?])\s*")


def identity(meteor: bool) -> str:
    """Name the libraries of the metrics and their versions, for the signature."""
    names = f"bleu:nltk@{version('nltk')}|rouge:rouge-score@{version('rouge-score')}"
    return f"{names}|meteor:nltk@{version('nltk')}" if meteor else names


def has_meteor() -> bool:
    """Whether NLTK finds METEOR's corpora, in `NLTK_DATA` or its usual folders."""
    try:
        _meteor("dog", ["cat"])  # two words that differ: only then is WordNet asked
    except (LookupError, OSError):  # missing, or incomplete
        return False
    return True


def lexical_scores(references: Sequence[str], generated: str, *, meteor: bool) -> dict[str, float]:
    """Compute BLEU (all references at once), ROUGE and METEOR (the best reference) of one text."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    tokens = _bleu_tokens(generated)
    against = [_bleu_tokens(reference) for reference in references]
    smooth = SmoothingFunction().method1
    scores = dict.fromkeys(_WEIGHTS, 0.0)
    if tokens:
        for name, weights in _WEIGHTS.items():
            bleu = sentence_bleu(against, tokens, weights=weights, smoothing_function=smooth)
            scores[name] = float(bleu)
    if meteor:
        scores[METEOR] = _meteor(generated, references)
    rouge = [_rouge().score(_lines(reference), _lines(generated)) for reference in references]
    for name, key in _ROUGE.items():
        scores[name] = max(float(scored[key].fmeasure) for scored in rouge)
    return scores


def _meteor(generated: str, references: Sequence[str]) -> float:
    from nltk.translate.meteor_score import meteor_score

    return float(
        meteor_score([_words(text.lower()) for text in references], _words(generated.lower()))
    )


def _words(text: str) -> list[str]:
    from nltk.tokenize import sent_tokenize

    return [word for sentence in sent_tokenize(text) for word in _tokenizer().tokenize(sentence)]


def _bleu_tokens(text: str) -> list[str]:
    # Without ASCII punctuation there are no sentences to find: `word_tokenize` without its corpus.
    tokens: list[str] = _tokenizer().tokenize(strip_punctuation(text.lower()))
    return tokens


def _lines(text: str) -> str:
    return _SENTENCE_END.sub("\\1\n", text.strip())


@functools.cache
def _rouge() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(_ROUGE.values()), use_stemmer=True)


@functools.cache
def _tokenizer() -> Any:
    """NLTK's word tokenizer as it was when the scores were published."""
    # Since 3.10 NLTK also cuts at dashes, and cuts a single quotation mark off the word that
    # follows.
    from nltk.tokenize.destructive import NLTKWordTokenizer

    tokenizer = NLTKWordTokenizer()
    tokenizer.PUNCTUATION = [rule for rule in tokenizer.PUNCTUATION if not rule[0].search("—")]
    quotes = tokenizer.STARTING_QUOTES
    tokenizer.STARTING_QUOTES = [rule for rule in quotes if not rule[0].search("'look")]
    return tokenizer
