"""Results from the vectors of a block: cosines, alignment and the choice among references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vcs_numba import HmCf, Params, Scores, align, hm_cf, score_batch
from vcs_numba.batch import SCORE_DTYPE
from vcs_numba.embeddings import cosine_similarity
from vcs_runtime.errors import TextError
from vcs_runtime.inference.vector_cache import Vector
from vcs_runtime.scoring.options import SUBSTITUTION, Options
from vcs_runtime.scoring.preparation import Block, PreparedPair, similarities_of
from vcs_runtime.scoring.result import Evidence, Result, merit
from vcs_runtime.scoring.substitution import WordComparison
from vcs_runtime.util.numbers import exact_means

T = TypeVar("T")

# Similarities of one call, 128 MiB: one pair may have more, several together may not.
GROUP = 1 << 24


def score_in_groups(
    block: Block[T],
    vectors: dict[str, Vector],
    refused: dict[str, TextError],
    options: Options,
    signature: str,
    words: WordComparison,
) -> Iterator[list[tuple[T, Result, Evidence | None]]]:
    """Score the pairs of a block, in groups whose similarities fit into memory together.

    `refused` has the errors of texts that the embedder refuses, `vectors` the unit vectors of all
    others.
    """
    for group in _groups(block):
        checked = [(item, _refused(pair, refused) or pair) for item, pair in group]
        compared = [(item, pair, _compare(pair, vectors)) for item, pair in checked]
        every = [evidence for _, _, candidates in compared for evidence in candidates]
        rows = iter(align_all(every, options.params).tolist())
        scored: list[tuple[T, Result, Evidence | None]] = []
        for item, pair, candidates in compared:
            if isinstance(pair, TextError):
                scored.append((item, Result(None, 0, 0, signature, error=str(pair)), None))
                continue
            scores = [Scores._make(next(rows)) for _ in candidates]
            result = _result(pair, scores, options, signature)
            if pair.sentences:
                coarse = [evidence.gas for evidence in candidates]
                further = _hm_cf(pair.sentences, coarse, vectors, options.aggregate)
                result = replace(result, further=further)
            evidence = candidates[result.reference_index]._replace(by_reference=tuple(scores))
            scored.append((item, result, evidence))
        if SUBSTITUTION in options.also:
            scored = _with_substitution(
                scored, [candidates for *_, candidates in compared], options, words
            )
        yield scored


def align_all(evidence: Sequence[Evidence], params: Params) -> npt.NDArray[np.void]:
    """Return the scores of pairs that are embedded, as `score_batch` does."""
    if any(own.times for own in evidence):
        scores = [align(own.similarity, params, own.times).scores(own.gas) for own in evidence]
        return np.array(scores, SCORE_DTYPE)
    return score_batch([own.similarity for own in evidence], [own.gas for own in evidence], params)


def _groups(block: Block[T]) -> Iterator[Block[T]]:
    group: Block[T] = []
    total = 0
    for item, pair in block:
        size = 0 if isinstance(pair, TextError) else similarities_of(pair.chunks)
        if group and total + size > GROUP:
            yield group
            group, total = [], 0
        group.append((item, pair))
        total += size
    yield group


def _with_substitution(
    scored: list[tuple[T, Result, Evidence | None]],
    candidates: list[list[Evidence]],
    options: Options,
    words: WordComparison,
) -> list[tuple[T, Result, Evidence | None]]:
    """Compare the words of each pair with its best reference, or with all references for a mean."""
    chosen: list[tuple[Sequence[Evidence], Sequence[Scores]]] = []
    for (_, result, evidence), own in zip(scored, candidates, strict=True):
        if evidence is not None:
            best = slice(result.reference_index, result.reference_index + 1)
            part = slice(None) if options.aggregate == "mean" else best
            chosen.append((own[part], evidence.by_reference[part]))
    found = iter(words.compare(chosen, options.params))
    finished: list[tuple[T, Result, Evidence | None]] = []
    for item, result, evidence in scored:
        if evidence is not None:
            strict, replaced = next(found)
            result = replace(result, strict=strict)
            own_words = replaced[result.reference_index if options.aggregate == "mean" else 0]
            evidence = evidence._replace(words=own_words)
        finished.append((item, result, evidence))
    return finished


def _refused(pair: PreparedPair | TextError, errors: dict[str, TextError]) -> TextError | None:
    """Return the error of the first text of a pair that the embedder refuses."""
    if not errors or isinstance(pair, TextError):
        return None
    return next((errors[text] for text in pair.all_texts() if text in errors), None)


def _compare(pair: PreparedPair | TextError, vectors: dict[str, Vector]) -> list[Evidence]:
    """Compute the evidence for each reference of a pair; none for a pair with an error."""
    if isinstance(pair, TextError):
        return []
    *references, generated = pair.texts
    *reference_chunks, generated_chunks = pair.chunks
    right = _rows((generated, *generated_chunks), vectors)
    evidence = []
    for i, (reference, chunks) in enumerate(zip(references, reference_chunks, strict=True)):
        left = _rows((reference, *chunks), vectors)
        gas = float(_cosines(left[:1], right[:1])[0, 0])
        of_chunks = left[1:], right[1:]
        times = (pair.times[i], pair.times[-1]) if pair.times else None
        parts = (chunks, generated_chunks)
        evidence.append(Evidence(parts, _cosines(*of_chunks), gas, vectors=of_chunks, times=times))
    return evidence


def _result(pair: PreparedPair, scores: list[Scores], options: Options, signature: str) -> Result:
    best = 0
    if len(scores) > 1:
        keys = [(merit(own), len(chunks)) for own, chunks in zip(scores, pair.chunks, strict=False)]
        best = keys.index(max(keys))
    reported = Scores._make(exact_means(scores)) if options.aggregate == "mean" else scores[best]
    return Result(
        reported,
        len(pair.chunks[best]),
        len(pair.chunks[-1]),
        signature,
        best,
        len(pair.texts) - 1,
        segmenter=pair.segmenter,
    )


def _rows(texts: Sequence[str], vectors: Mapping[str, Vector]) -> npt.NDArray[np.float32]:
    return np.concatenate([vectors[text] for text in texts]).reshape(len(texts), -1)


def _cosines(
    left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Compute the similarity matrix (len(left), len(right)) (docs/reference/vcs.md, section 1).

    It is clipped: vectors rounded to float32 may be slightly longer than 1, and no score may exceed
    1.
    """
    similarity = cosine_similarity(left, right)
    return similarity.clip(-1.0, 1.0, out=similarity)  # in place: long texts have large matrices


def _hm_cf(
    sentences: Sequence[Sequence[str]],
    coarse: Sequence[float],
    vectors: Mapping[str, Vector],
    aggregate: str,
) -> HmCf:
    """Compute HM-CF of a pair: with its best reference, or the mean over all references.

    `sentences` are those of each reference, then of the generated text; `coarse` has the cosine of
    the generated text with each whole reference.
    """
    *references, generated = (_rows(texts, vectors) for texts in sentences)
    every = [
        hm_cf(_cosines(reference, generated), whole)
        for reference, whole in zip(references, coarse, strict=True)
    ]
    if aggregate == "mean":
        return HmCf._make(exact_means(every))
    return max(every, key=lambda own: (own.hm_cf, *own))
