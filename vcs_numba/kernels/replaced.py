"""Words that another word replaced, and the shares of them (docs/reference/vcs.md, section 15)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcs_numba.jit.kernel import helper, rare
from vcs_numba.kernels.counterparts import (
    BLOCK,
    CLASS,
    CLASS_COUNT,
    CONTEXT_CERTAINTY,
    CONTEXT_WEIGHT,
    HALO,
    LACK,
    LEAST_MASS,
    NAME,
    PAIR_REACH,
    REWORDING,
    ROWS,
    SIMILARITY,
    THING,
    THING_WEIGHT,
    WEIGHT,
    Bools,
    Shared,
    Side,
    Text,
    Vectors,
    compare,
    exclude_each_other,
    find_counterparts,
    gather_columns,
    ramp,
    side_of,
    within_reach,
)
from vcs_numba.kernels.matching import Floats
from vcs_numba.kernels.windows import Ints


class Span(NamedTuple):
    """The words of a chunk: first..stop."""

    first: int
    stop: int


@helper
def neighbour_count(word: int, chunk: Span, step: int) -> int:
    """Count the words of a chunk to the left (`step` -1) or right (`step` 1) of a word."""
    return chunk.stop - 1 - word if step > 0 else word - chunk.first


@helper
def agreement(
    lines: Floats, i: int, column: int, counts: tuple[int, int], step: int, lenient: bool
) -> float:
    """Return the largest similarity of two words' neighbours on a side, within their chunks.

    `step` is -1 for the left side, 1 for the right. The row of word i in `lines` is i % ROWS. Word
    j has the column `column`. `counts` are the numbers of neighbours of i and of j on this side.
    Two words that are both the outermost of their chunks agree. A word without neighbours and a
    word with neighbours do not. If `lenient`, the next neighbour of one word may agree with the
    second next of the other.
    """
    count_i, count_j = counts
    if count_i == 0 and count_j == 0:
        return 1.0
    if count_i == 0 or count_j == 0:
        return -1.0
    near = (i + step) % ROWS
    best: float = lines[near, column + step]
    if not lenient:
        return best
    if count_j > 1:
        best = max(best, lines[near, column + 2 * step])
    if count_i > 1:
        best = max(best, lines[(i + 2 * step) % ROWS, column + step])
    return best


@helper
def keep_pair(side: Side, word: int, other: int, weight: float, similarity: float) -> None:
    """Keep the pair of largest weight of a word; the first one among equals."""
    if weight > side.numbers[WEIGHT, word]:
        side.numbers[WEIGHT, word] = weight
        side.numbers[SIMILARITY, word] = similarity
        side.partners[word] = other


@helper
def any_lack(numbers: Floats, first: int, stop: int) -> bool:
    """Return whether one of the words first..stop lacks a counterpart."""
    top = 0.0
    for j in range(first, stop):
        top = max(top, numbers[LACK, j])
    return top > 0.0


@helper
def pair_block(
    gen: Side,
    ref: Side,
    gen_chunk: Span,
    ref_chunk: Span,
    first: int,
    shared: Shared,
    rows: Ints,
) -> None:
    """Pair the words of a generated chunk with one block of a reference chunk.

    The block begins at the word `first`. `rows` is scratch: the word of each row of `shared.lines`.
    """
    lines, params = shared.lines, shared.params
    stop = min(first + BLOCK, ref_chunk.stop)
    left = max(first - HALO, ref_chunk.first)
    right = min(stop + HALO, ref_chunk.stop)
    gather_columns(ref.words, left, right, shared)
    for k in range(ROWS):
        rows[k] = -1
    for i in range(gen_chunk.first, gen_chunk.stop):
        if gen.numbers[LACK, i] == 0.0:
            continue
        for near in range(max(i - HALO, gen_chunk.first), min(i + HALO + 1, gen_chunk.stop)):
            row = near % ROWS
            if rows[row] != near:
                rows[row] = near
                compare(gen.words, near, ref.words, left, right, shared, row)
        for j in range(first, stop):
            lack = min(gen.numbers[LACK, i], ref.numbers[LACK, j])
            if lack == 0.0:
                continue
            gen_class, ref_class = gen.words[CLASS, i], ref.words[CLASS, j]
            alike = gen_class == ref_class or exclude_each_other(
                gen.words, i, ref.words, j, shared.excluding
            )
            if not alike and (gen_class == NAME or ref_class == NAME):
                continue
            column = j - left
            # A word of another class must stand in the very same place: a neighbour may be
            # replaced, too.
            left_counts = neighbour_count(i, gen_chunk, -1), neighbour_count(j, ref_chunk, -1)
            right_counts = neighbour_count(i, gen_chunk, 1), neighbour_count(j, ref_chunk, 1)
            before = agreement(lines, i, column, left_counts, -1, alike)
            after = agreement(lines, i, column, right_counts, 1, alike)
            context = (ramp(before, params) + ramp(after, params)) / 2.0
            if alike or context >= params[CONTEXT_CERTAINTY]:
                part = params[CONTEXT_WEIGHT]
                weight = lack * ((1.0 - part) + part * context)
                similarity = lines[i % ROWS, column]
                keep_pair(gen, i, j, weight, similarity)
                keep_pair(ref, j, i, weight, similarity)


@helper
def pair_words(gen: Side, ref: Side, shared: Shared) -> None:
    """Write the word that replaced each word, with the weight and the similarity of the pair."""
    rows = np.empty(ROWS, dtype=np.int64)
    for c in range(len(gen.matches)):
        gen_chunk = Span(gen.starts[c], gen.starts[c + 1])
        if not any_lack(gen.numbers, gen_chunk.first, gen_chunk.stop):
            continue
        for d in range(len(ref.matches)):
            if not within_reach(c, d, gen.matches, ref.matches, shared.params[PAIR_REACH]):
                continue
            ref_chunk = Span(ref.starts[d], ref.starts[d + 1])
            for first in range(ref_chunk.first, ref_chunk.stop, BLOCK):
                if any_lack(ref.numbers, first, min(first + BLOCK, ref_chunk.stop)):
                    pair_block(gen, ref, gen_chunk, ref_chunk, first, shared, rows)


@helper
def class_of_pair(side: Side, i: int, other: Side, j: int) -> int:
    """Return the class of word i and its replacement j: the most probable one for both.

    A name stays a name.
    """
    if side.words[CLASS, i] == NAME or other.words[CLASS, j] == NAME:
        return np.int64(side.words[CLASS, i])  # type: ignore[return-value]
    best = 0
    for k in range(1, NAME):
        if side.logs[i, k] + other.logs[j, k] > side.logs[i, best] + other.logs[j, best]:
            best = k
    return best


@rare
def add_by_class(side: Side, other: Side, sums: Floats, counts: Floats) -> None:
    """Write each word's class, and add replaced weights and words by class, in word order."""
    for i in range(side.words.shape[1]):
        group = np.int64(side.words[CLASS, i])
        if side.partners[i] >= 0:
            group = np.int64(class_of_pair(side, i, other, side.partners[i]))
        side.classes[i] = group
        sums[group] += side.numbers[WEIGHT, i]
        counts[group] += 1.0


@helper
def combine_shares(
    gen_sums: Floats,
    ref_sums: Floats,
    gen_counts: Floats,
    ref_counts: Floats,
    similar: float,
    params: Floats,
    out: Floats,
) -> None:
    """Write substitution, then the share of each class, to `out` (5,)."""
    top = 0.0
    for k in range(CLASS_COUNT):
        mass = max(params[LEAST_MASS], gen_counts[k], ref_counts[k])
        out[1 + k] = min(gen_sums[k], ref_sums[k]) / mass
        weight = params[THING_WEIGHT] if k == THING else 1.0
        top = max(top, out[1 + k] * weight)
    out[0] = min(max(top - params[REWORDING] * similar, 0.0), 1.0)


def replace(
    gen_text: Text,
    ref_text: Text,
    vectors: Vectors,
    excluding: Bools,
    params: Floats,
    out: Floats,
) -> None:
    """Write the shares of replaced words to `out` (5,), and the partners of words to the texts."""
    gen = side_of(gen_text)
    ref = side_of(ref_text)
    width = BLOCK + 2 * HALO
    columns = np.empty((vectors.shape[1], width), dtype=np.float64)
    lines = np.empty((ROWS, width), dtype=np.float64)
    shared = Shared(vectors, excluding, params, columns, lines)
    similar = find_counterparts(gen, ref, shared)
    pair_words(gen, ref, shared)
    sums = np.zeros((4, CLASS_COUNT), dtype=np.float64)
    add_by_class(gen, ref, sums[0], sums[1])
    add_by_class(ref, gen, sums[2], sums[3])
    combine_shares(sums[0], sums[2], sums[1], sums[3], similar, params, out)
