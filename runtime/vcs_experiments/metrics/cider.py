"""CIDEr as pycocoevalcap computes it: n-grams that tell an item apart weigh more than those of every item.

Vedantam et al. 2015 (https://arxiv.org/abs/1411.5726). What pycocoevalcap and the papers call CIDEr is its
variant CIDEr-D: counts are clipped, and another length is punished by a Gaussian.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from vcs_experiments.metrics.corpus import Corpus
from vcs_experiments.metrics.ptb_tokenizer import ptb_words

COLUMN = "CIDEr"
_ORDERS = 4  # n-grams of 1 to 4 words
_SIGMA = 6.0  # of the Gaussian over the difference of lengths
_FACTOR = 10.0  # CIDEr lies between 0 and 10
_RECENT = 1024  # references whose counts are kept

Counts = Counter[tuple[str, ...]]


class _Weighted:
    """A text's n-grams of each order, weighted by tf-idf, and the lengths of these vectors."""

    def __init__(self, counts: Counts, cider: Cider) -> None:
        self.vectors: list[dict[tuple[str, ...], float]] = [{} for _ in range(_ORDERS)]
        self.pairs = 0  # pycocoevalcap measures the length of a text by its pairs of words
        for gram, count in counts.items():
            self.vectors[len(gram) - 1][gram] = count * cider.idf(gram)
            self.pairs += count if len(gram) == 2 else 0
        self.norms = [math.sqrt(sum(weight**2 for weight in vector.values())) for vector in self.vectors]


class Cider:
    """CIDEr with the idf of a corpus. An item's references together are one document."""

    def __init__(self, corpus: Corpus) -> None:
        self._frequencies: Counts = Counter()
        for references in corpus.documents:
            self._frequencies.update({gram for text in references for gram in _counts(text)})
        self._log_documents = math.log(max(1, len(corpus.documents)))
        self._weighted = lru_cache(_RECENT)(self._weigh)

    def idf(self, gram: tuple[str, ...]) -> float:
        """Return the inverse document frequency of an n-gram; one that is nowhere counts as in one item."""
        return self._log_documents - math.log(max(1, self._frequencies[gram]))

    def score(self, references: Sequence[str], generated: str) -> float:
        """Compute CIDEr of one text: the mean over its references, from 0 to 10."""
        own = self._weigh(generated)
        total = sum(_similarity(own, self._weighted(reference)) for reference in references)
        return _FACTOR * total / len(references)

    def _weigh(self, text: str) -> _Weighted:
        return _Weighted(_counts(text), self)


def _counts(text: str) -> Counts:
    """Count a text's n-grams."""
    words = ptb_words(text)
    return Counter(
        tuple(words[start : start + order])
        for order in range(1, _ORDERS + 1)
        for start in range(len(words) - order + 1)
    )


def _similarity(generated: _Weighted, reference: _Weighted) -> float:
    """Return the mean over orders of the cosines, with counts clipped to the reference's."""
    total = 0.0
    for order in range(_ORDERS):
        theirs = reference.vectors[order]
        product = sum(
            min(weight, theirs[gram]) * theirs[gram]
            for gram, weight in generated.vectors[order].items()
            if gram in theirs
        )
        if product:
            total += product / (generated.norms[order] * reference.norms[order])
    gap = generated.pairs - reference.pairs
    return total / _ORDERS * math.exp(-(gap**2) / (2 * _SIGMA**2))
