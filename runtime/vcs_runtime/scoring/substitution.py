"""Substitution, beside VCS: which words were replaced (docs/reference/vcs.md, section 15)."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

from vcs_numba import Params, Scores, Substitution, WordPair, align, strict, substitution_batch
from vcs_runtime.bundle.opening import DIGITS, Bundle, open_bundle
from vcs_runtime.errors import BundleError
from vcs_runtime.scoring.result import Evidence, ReplacedWords, StrictScores
from vcs_runtime.util.lru import LRUCache
from vcs_runtime.util.numbers import exact_means
from vcs_runtime.words.reading import Numbering, TextWords, read_words, words_hash
from vcs_runtime.words.vectors import WordVectors

#: Bytes for the words of texts that are remembered: some 100 texts of 450 words.
_MEMORY_BYTES: Final = 32 << 20
# Bytes of a remembered text, and of a word beside its letters, if no other text has the word.
_TEXT_BYTES: Final = 2000
_WORD_BYTES: Final = 500


class _Opened(NamedTuple):
    name: str
    vectors: WordVectors


class WordComparison:
    """A comparison of the words of pairs by the token vectors of a bundle.

    The bundle is opened on first use.
    """

    def __init__(self, bundle: str | os.PathLike[str] | Bundle = "default") -> None:
        self._bundle = bundle
        self._texts: LRUCache[TextWords] = LRUCache(_MEMORY_BYTES, _bytes_of)

    @cached_property
    def _opened(self) -> _Opened:
        try:
            bundle = self._bundle if isinstance(self._bundle, Bundle) else open_bundle(self._bundle)
            vectors = WordVectors(bundle)
        except BundleError as error:
            raise BundleError(f"words of substitution (--words): {error}") from None
        embedder = bundle.manifest.embedder
        assert embedder is not None  # WordVectors would have refused it
        identity = words_hash() + bundle.model_hash(embedder)
        digits = hashlib.sha256(identity.encode()).hexdigest()[:DIGITS]
        return _Opened(f"{embedder.name}@{digits}", vectors)

    def open(self) -> None:
        """Open the bundle now; BundleError if it cannot be used."""
        _ = self._opened

    @property
    def is_open(self) -> bool:
        """Whether the bundle was opened, because words were to be compared."""
        return "_opened" in self.__dict__

    @property
    def name(self) -> str:
        """Name of the bundle's embedder, with a hash of everything that affects the comparison."""
        return self._opened.name

    def compare(
        self, pairs: Sequence[tuple[Sequence[Evidence], Sequence[Scores]]], params: Params
    ) -> list[tuple[StrictScores, list[ReplacedWords]]]:
        """Compare the words of pairs; each pair has evidence and scores for every reference.

        Returns for each pair the means over its references, and the words with each reference.
        """
        # All pairs are compared in one call, so their references are put in one row first.
        numbering = Numbering()
        word_pairs = []
        texts = []
        for evidence in chain.from_iterable(candidates for candidates, _ in pairs):
            reference, generated = map(self._read, evidence.chunks)
            alignment = align(evidence.similarity, params, evidence.times)
            word_pair = WordPair(
                gen=numbering.words(generated),
                ref=numbering.words(reference),
                gen_match=alignment.precision.match,
                ref_match=alignment.recall.match,
            )
            word_pairs.append(word_pair)
            texts.append((reference, generated))
        substitutions = substitution_batch(word_pairs, numbering.vocabulary(self._opened.vectors))
        row = zip(texts, substitutions, strict=True)
        results = []
        for _, scores in pairs:
            strict_of_references = []
            words = []
            for of_reference in scores:
                (reference, generated), substitution = next(row)
                strict_of_references.append(strict_scores(substitution, of_reference))
                words.append(ReplacedWords(reference, generated, substitution))
            means = StrictScores._make(exact_means(strict_of_references))
            results.append((means, words))
        return results

    def _read(self, chunks: Sequence[str]) -> TextWords:
        key = f"{list(map(len, chunks))}{''.join(chunks)}"
        words = self._texts.get(key)
        if words is None:
            words = read_words(chunks)
            self._texts.put(key, words)
        return words


def _bytes_of(words: TextWords) -> int:
    """Count the bytes of a text's words."""
    letters = sum(sys.getsizeof(word.form) + sys.getsizeof(word.stem) for word in words.lexemes)
    return _TEXT_BYTES + len(words) * _WORD_BYTES + letters


def strict_scores(substitution: Substitution, scores: Scores) -> StrictScores:
    """Return the substitution of a pair, and its strict scores."""
    lowered = strict(scores, substitution.substitution)
    return StrictScores(
        substitution=substitution.substitution,
        replaced_things=substitution.thing,
        replaced_actions=substitution.action,
        replaced_qualities=substitution.quality,
        replaced_names=substitution.name,
        vcs_strict=lowered.vcs_strict,
        margin_strict=lowered.margin_strict,
    )
