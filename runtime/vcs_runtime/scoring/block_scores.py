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
from vcs_runtime.scoring.flags import flags_of_texts
from vcs_runtime.scoring.options import SUBSTITUTION, Options
from vcs_runtime.scoring.preparation import Block, PreparedPair, similarities_of
from vcs_runtime.scoring.result import Evidence, Result, merit
from vcs_runtime.scoring.substitution import WordComparison
from vcs_runtime.util.numbers import exact_means
from vcs_runtime.util.stages import check_stopped

T = TypeVar("T")

# An item with the result and the evidence of its pair.
_Scored = tuple[T, Result, Evidence | None]

# Largest number of similarities in a group of several pairs: 128 MiB.
GROUP = 1 << 24
# Rows of a similarity matrix that are computed at once: about a second of work for the longest.
_ROWS = 1024


def score_in_groups(
    block: Block[T],
    vectors: dict[str, Vector],
    refused: dict[str, TextError],
    options: Options,
    signature: str,
    words: WordComparison,
) -> Iterator[list[_Scored[T]]]:
    """Score the pairs of a block, in groups whose similarities fit into memory together.

    `refused` holds the errors of the texts that the embedder refuses, `vectors` the unit vectors of
    the other texts.
    """
    for group in _groups(block):
        # The evidence for each reference of each pair, and the evidence of all pairs in a row, so
        # that one call aligns them all.
        compared: list[tuple[T, PreparedPair | TextError, list[Evidence]]] = []
        evidence_of_all: list[Evidence] = []
        for item, pair in group:
            pair = _refused(pair, refused) or pair
            candidates = _compare(pair, vectors)
            compared.append((item, pair, candidates))
            evidence_of_all += candidates
        rows = iter(align_all(evidence_of_all, options.params).tolist())
        scored: list[_Scored[T]] = []
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
            candidates_of_all = [candidates for _, _, candidates in compared]
            scored = _with_substitution(scored, candidates_of_all, options, words)
        yield scored


def align_all(evidence: Sequence[Evidence], params: Params) -> npt.NDArray[np.void]:
    """Return the scores of embedded pairs, as `score_batch` does."""
    if any(each.times for each in evidence):
        scores = []
        for each in evidence:
            alignment = align(each.similarity, params, each.times)
            scores.append(alignment.scores(each.gas))
        return np.array(scores, SCORE_DTYPE)
    similarities = [each.similarity for each in evidence]
    return score_batch(similarities, [each.gas for each in evidence], params)


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
    scored: list[_Scored[T]],
    candidates: list[list[Evidence]],
    options: Options,
    words: WordComparison,
) -> list[_Scored[T]]:
    """Compare the words of each pair with its best reference, or with all references for a mean."""
    with_all = options.aggregate == "mean"
    chosen: list[tuple[Sequence[Evidence], Sequence[Scores]]] = []
    for (_, result, evidence), of_references in zip(scored, candidates, strict=True):
        if evidence is None:
            continue
        if with_all:
            chosen.append((of_references, evidence.by_reference))
        else:
            best = result.reference_index
            chosen.append(([of_references[best]], [evidence.by_reference[best]]))
    comparisons = iter(words.compare(chosen, options.params))
    finished: list[_Scored[T]] = []
    for item, result, evidence in scored:
        if evidence is not None:
            strict, replaced = next(comparisons)
            result = replace(result, strict=strict)
            best = result.reference_index if with_all else 0
            evidence = evidence._replace(words=replaced[best])
        finished.append((item, result, evidence))
    return finished


def _refused(pair: PreparedPair | TextError, errors: dict[str, TextError]) -> TextError | None:
    """Return the error of the first text of a pair that the embedder refuses."""
    if not errors or isinstance(pair, TextError):
        return None
    return next((errors[text] for text in pair.all_texts() if text in errors), None)


def _compare(pair: PreparedPair | TextError, vectors: dict[str, Vector]) -> list[Evidence]:
    """Compute the evidence for each reference of a pair; an empty list for an error."""
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
        evidence.append(
            Evidence(
                (chunks, generated_chunks),
                _cosines(*of_chunks),
                gas,
                vectors=of_chunks,
                times=times,
                texts=(reference, generated),
            )
        )
    return evidence


def _result(pair: PreparedPair, scores: list[Scores], options: Options, signature: str) -> Result:
    best = 0
    if len(scores) > 1:
        # Among references with equal scores, the one with the most chunks wins.
        keys = [(merit(each), len(pair.chunks[i])) for i, each in enumerate(scores)]
        best = keys.index(max(keys))
    reported = Scores._make(exact_means(scores)) if options.aggregate == "mean" else scores[best]
    chunks, generated = pair.chunks[best], pair.chunks[-1]
    # The segments of times are the caller's, and the words of short texts are no sentences.
    split = pair.segmenter is not None and not pair.times
    return Result(
        reported,
        len(chunks),
        len(generated),
        signature,
        best,
        len(pair.texts) - 1,
        segmenter=pair.segmenter,
        noted=flags_of_texts(chunks, generated, options.chunk_size) if split else (),
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
    similarity = np.empty((len(left), len(right)))
    for first in range(0, len(left), _ROWS):
        check_stopped()
        rows = slice(first, first + _ROWS)
        # In place: long texts have large matrices.
        cosine_similarity(left[rows], right).clip(-1.0, 1.0, out=similarity[rows])
    return similarity


def _hm_cf(
    sentences: Sequence[Sequence[str]],
    coarse: Sequence[float],
    vectors: Mapping[str, Vector],
    aggregate: str,
) -> HmCf:
    """Compute HM-CF of a pair: with its best reference, or the mean over all references.

    `sentences` holds the sentences of each reference, then of the generated text; `coarse` the
    cosine of the generated text with each whole reference.
    """
    *references, generated = (_rows(texts, vectors) for texts in sentences)
    scores = []
    for reference, whole in zip(references, coarse, strict=True):
        scores.append(hm_cf(_cosines(reference, generated), whole))
    if aggregate == "mean":
        return HmCf._make(exact_means(scores))
    return max(scores, key=lambda each: (each.hm_cf, *each))
