"""Pairs of texts as similarity matrices: embedded once, aligned as often as there are parameters to try."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcs_numba import Params, score_batch
from vcs_numba.embeddings import cosine_similarity
from vcs_runtime.cache import Vector, VectorCache, VectorStore, cache_identity
from vcs_runtime.contractions import expand_contractions
from vcs_runtime.errors import TextError
from vcs_runtime.scorer import Scorer
from vcs_runtime.segmenter import Segmenter
from vcs_runtime.text import check_text, clean_segments, join_chunks, strip_punctuation

Pair = tuple[str, str]
_MEMORY_BYTES = 256 << 20


@dataclass(frozen=True)
class Matrix:
    """What alignment needs of one pair: the similarities `(n_ref, n_gen)` float64, and the texts' cosine."""

    similarity: npt.NDArray[np.float64]
    gas: float


class Matrices:
    """Pairs to matrices, by a scorer's segmenter and embedder; equal to the scorer's own, to the bit."""

    def __init__(self, scorer: Scorer, cache: Path | None = None) -> None:
        """`cache`: the folder of vectors that the scorer was opened with, if any."""
        embedder = scorer.embedder
        kept = VectorCache(cache, cache_identity(embedder), embedder.spec.dimension) if cache else None
        self._store = VectorStore(embedder, kept, _MEMORY_BYTES)
        self._segmenter = scorer.segmenter

    def cut(self, pairs: Sequence[Pair]) -> list[tuple[list[str], list[str]] | TextError]:
        """The segments of both texts of each pair (docs/vcs.md, section 1), or why it has none."""
        return cut_pairs(self._segmenter, pairs)

    def get(
        self,
        pairs: Sequence[Pair],
        segments: Sequence[tuple[list[str], list[str]]],
        chunk_sizes: Sequence[int] = (1,),
    ) -> dict[int, list[Matrix]]:
        """The matrices of pairs from their segments, by chunk size; all texts are embedded in one call.

        Raises TextError for a text that the model refuses.
        """
        chunks = {
            size: [(join_chunks(left, size), join_chunks(right, size)) for left, right in segments]
            for size in chunk_sizes
        }
        pieces = (text for cut in chunks.values() for sides in cut for side in sides for text in side)
        vectors = self._store.get(chain(chain.from_iterable(pairs), pieces))
        gas = [float(_cosines([reference], [generated], vectors)[0, 0]) for reference, generated in pairs]
        return {
            size: [Matrix(_cosines(*sides, vectors), cosine) for sides, cosine in zip(cut, gas, strict=True)]
            for size, cut in chunks.items()
        }

    def close(self) -> None:
        """Drop the vectors and close the cache."""
        self._store.close()


def cut_pairs(segmenter: Segmenter, pairs: Sequence[Pair]) -> list[tuple[list[str], list[str]] | TextError]:
    """Segments of pairs as `Scorer` cuts them: by rules where both texts let them, else by the model."""
    found: list[tuple[list[str], list[str]] | TextError] = []
    learned: dict[int, Pair] = {}
    for i, pair in enumerate(pairs):
        try:
            sides = [
                _sentences(segmenter, text, what)
                for text, what in zip(pair, ("reference", "generated"), strict=True)
            ]
        except TextError as error:
            found.append(error)
            continue
        if None in sides:
            learned[i] = (_stripped(pair[0]), _stripped(pair[1]))
            sides = [[], []]
        found.append((clean_segments(sides[0] or []), clean_segments(sides[1] or [])))
    texts = list(dict.fromkeys(text for pair in learned.values() for text in pair))
    pieces = dict(zip(texts, map(clean_segments, segmenter.split_learned(texts)), strict=True))
    for i, (reference, generated) in learned.items():
        found[i] = (pieces[reference], pieces[generated])
    return found


def _sentences(segmenter: Segmenter, text: str, what: str) -> list[str] | None:
    check_text(text, what)
    if not _stripped(text).strip():
        raise TextError(f"{what}: the text holds nothing but punctuation")
    return segmenter.sentences(expand_contractions(text), what)


def _stripped(text: str) -> str:
    return strip_punctuation(expand_contractions(text))


def vcs(matrices: Iterable[Matrix], params: Params) -> npt.NDArray[np.void]:
    """All scores of each matrix under `params`: records of `vcs_numba.SCORE_DTYPE`."""
    kept = list(matrices)
    return score_batch([matrix.similarity for matrix in kept], [matrix.gas for matrix in kept], params)


def _cosines(
    reference: Sequence[str], generated: Sequence[str], vectors: dict[str, Vector]
) -> npt.NDArray[np.float64]:
    left, right = (np.array([vectors[text] for text in texts]) for texts in (reference, generated))
    return np.clip(cosine_similarity(left, right), -1.0, 1.0)
