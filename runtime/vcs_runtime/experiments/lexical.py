"""BLEU, ROUGE and METEOR as the authors computed them, by the libraries that they used.

BLEU: NLTK's `sentence_bleu`, smoothing `method1`, on lower-cased word tokens without ASCII punctuation.
ROUGE: `rouge_score`, f-measure, stemmed, a newline after each sentence end (for ROUGE-Lsum).
METEOR: NLTK's `meteor_score` on lower-cased word tokens; needs the corpora `wordnet` and `punkt_tab`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from vcs_runtime.errors import DeviceError
from vcs_runtime.text.cleaning import strip_punctuation

METRICS = ("BLEU-1", "BLEU-4", "ROUGE-1", "ROUGE-4", "ROUGE-L", "ROUGE-Lsum")
METEOR = "METEOR"
_WEIGHTS = {"BLEU-1": (1.0, 0.0, 0.0, 0.0), "BLEU-4": (0.25, 0.25, 0.25, 0.25)}
_ROUGE = {"ROUGE-1": "rouge1", "ROUGE-4": "rouge4", "ROUGE-L": "rougeL", "ROUGE-Lsum": "rougeLsum"}
_SENTENCE_END = re.compile(r"([.!?])\s*")
_MISSING = "this experiment needs `vcs-runtime[experiments]`"


def need(*modules: str) -> None:
    """Raise DeviceError naming the extra, if one of its modules cannot be imported."""
    for module in modules:
        try:
            __import__(module)
        except ImportError as error:
            raise DeviceError(f"{_MISSING} ({error})") from None


def identity(meteor: bool) -> str:
    """The signature's fields of these metrics: the libraries and their versions."""
    names = f"bleu:nltk@{version('nltk')}|rouge:rouge-score@{version('rouge-score')}"
    return f"{names}|meteor:nltk@{version('nltk')}" if meteor else names


def meteor_is_there() -> bool:
    """Whether METEOR's corpora are on this machine: NLTK looks in `NLTK_DATA` and its usual folders."""
    try:
        _meteor("dog", ["cat"])  # words that differ: WordNet is asked for no others
    except (LookupError, OSError):  # not there, or not whole
        return False
    return True


def lexical_scores(references: Sequence[str], generated: str, *, meteor: bool) -> dict[str, float]:
    """The scores of one text by metric. Of several references: BLEU against all at once, others the best."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    tokens = _bleu_tokens(generated)
    against = [_bleu_tokens(reference) for reference in references]
    smooth = SmoothingFunction().method1
    scores = {
        name: float(sentence_bleu(against, tokens, weights=weights, smoothing_function=smooth))
        if tokens
        else 0.0
        for name, weights in _WEIGHTS.items()
    }
    if meteor:
        scores[METEOR] = _meteor(generated, references)
    rouge = [_rouge().score(_lines(reference), _lines(generated)) for reference in references]
    for name, key in _ROUGE.items():
        scores[name] = max(float(found[key].fmeasure) for found in rouge)
    return scores


def _meteor(generated: str, references: Sequence[str]) -> float:
    from nltk.translate.meteor_score import meteor_score

    return float(meteor_score([_words(text.lower()) for text in references], _words(generated.lower())))


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
    """NLTK's word tokenizer as it was when the scores were published: since 3.10 it also cuts at dashes, and
    single quotation marks off the word behind them.
    """
    from nltk.tokenize.destructive import NLTKWordTokenizer

    tokenizer = NLTKWordTokenizer()
    tokenizer.PUNCTUATION = [rule for rule in tokenizer.PUNCTUATION if not rule[0].search("—")]
    quotes = tokenizer.STARTING_QUOTES
    tokenizer.STARTING_QUOTES = [rule for rule in quotes if not rule[0].search("'look")]
    return tokenizer
