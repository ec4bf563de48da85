"""Words that another word replaced, and the shares of them (docs/reference/vcs.md, section 15)."""

from __future__ import annotations

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
    Ids,
    Shared,
    Side,
    Vectors,
    compare,
    exclude_each_other,
    fill_chunk_starts,
    find_counterparts,
    gather_columns,
    ramp,
    within_reach,
)
from vcs_numba.kernels.matching import Floats
from vcs_numba.kernels.windows import Ints


@helper
def agreement(
    lines: Floats,
    i: int,
    begin: int,
    end: int,
    column: int,
    j: int,
    start: int,
    stop: int,
    step: int,
    lenient: bool,
) -> float:
    """Return the largest similarity of two words' neighbours on a side, within their chunks.

    `step` is -1 for the left side, 1 for the right. Word i is one of begin..end, and its row in
    `lines` is i % ROWS. Word j is one of start..stop, and stands in the column `column`. Two words
    that are both the outermost of their chunks agree. A word without neighbours beside one with
    neighbours does not. If `lenient`, the next neighbour of one word may agree with the second next
    of the other.
    """
    steps_i = end - 1 - i if step > 0 else i - begin
    steps_j = stop - 1 - j if step > 0 else j - start
    if steps_i == 0 and steps_j == 0:
        return 1.0
    if steps_i == 0 or steps_j == 0:
        return -1.0
    near = (i + step) % ROWS
    best: float = lines[near, column + step]
    if not lenient:
        return best
    if steps_j > 1:
        best = max(best, lines[near, column + 2 * step])
    if steps_i > 1:
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
    begin: int,
    end: int,
    start: int,
    final: int,
    first: int,
    shared: Shared,
    rows: Ints,
) -> None:
    """Pair the generated words begin..end, a chunk, with the words start..final, a chunk.

    The block begins at the word `first`. `rows` is scratch: the word of each row of `shared.lines`.
    """
    lines, params = shared.lines, shared.params
    stop = min(first + BLOCK, final)
    left = max(first - HALO, start)
    right = min(stop + HALO, final)
    gather_columns(ref.words, left, right, shared)
    for k in range(ROWS):
        rows[k] = -1
    for i in range(begin, end):
        if gen.numbers[LACK, i] == 0.0:
            continue
        for near in range(max(i - HALO, begin), min(i + HALO + 1, end)):
            row = near % ROWS
            if rows[row] != near:
                rows[row] = near
                compare(gen.words, near, ref.words, left, right, shared, row)
        for j in range(first, stop):
            lack = min(gen.numbers[LACK, i], ref.numbers[LACK, j])
            if lack == 0.0:
                continue
            classes = gen.words[CLASS, i], ref.words[CLASS, j]
            alike = classes[0] == classes[1] or exclude_each_other(
                gen.words, i, ref.words, j, shared.excluding
            )
            if not alike and (classes[0] == NAME or classes[1] == NAME):
                continue
            column = j - left
            # A word of another class must stand in the very same place: a neighbour may be
            # replaced, too.
            before = agreement(lines, i, begin, end, column, j, start, final, -1, alike)
            after = agreement(lines, i, begin, end, column, j, start, final, 1, alike)
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
        begin = gen.starts[c]
        end = gen.starts[c + 1]
        if not any_lack(gen.numbers, begin, end):
            continue
        for d in range(len(ref.matches)):
            if not within_reach(c, d, gen.matches, ref.matches, shared.params[PAIR_REACH]):
                continue
            start = ref.starts[d]
            final = ref.starts[d + 1]
            for first in range(start, final, BLOCK):
                if any_lack(ref.numbers, first, min(first + BLOCK, final)):
                    pair_block(gen, ref, begin, end, start, final, first, shared, rows)


@helper
def class_of_pair(words: Ids, logs: Floats, i: int, others: Ids, other_logs: Floats, j: int) -> int:
    """Return the class of word i and its replacement j: the more probable of the two.

    A name stays a name.
    """
    if words[CLASS, i] == NAME or others[CLASS, j] == NAME:
        return np.int64(words[CLASS, i])  # type: ignore[return-value]
    best = 0
    for k in range(1, NAME):
        if logs[i, k] + other_logs[j, k] > logs[i, best] + other_logs[j, best]:
            best = k
    return best


@rare
def add_by_class(
    words: Ids,
    logs: Floats,
    others: Ids,
    other_logs: Floats,
    partners: Ids,
    numbers: Floats,
    classes: Ids,
    sums: Floats,
    counts: Floats,
) -> None:
    """Write each word's class, and add replaced weights and words by class, in word order."""
    for i in range(words.shape[1]):
        group = np.int64(words[CLASS, i])
        if partners[i] >= 0:
            group = np.int64(class_of_pair(words, logs, i, others, other_logs, partners[i]))
        classes[i] = group
        sums[group] += numbers[WEIGHT, i]
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
        top = max(top, out[1 + k] * (params[THING_WEIGHT] if k == THING else 1.0))
    out[0] = min(max(top - params[REWORDING] * similar, 0.0), 1.0)


def replace(
    gen: Ids,
    ref: Ids,
    gen_logs: Floats,
    ref_logs: Floats,
    gen_match: Ints,
    ref_match: Ints,
    vectors: Vectors,
    excluding: Bools,
    params: Floats,
    gen_numbers: Floats,
    ref_numbers: Floats,
    gen_ids: Ids,
    ref_ids: Ids,
    out: Floats,
) -> None:
    """Write the shares of replaced words to `out` (5,), and what became of each of n words.

    `gen_numbers` is float64 (3, n) with the rows LACK, WEIGHT and SIMILARITY; `gen_ids` is int32
    (2, n): each word's partner, at first -1, and its class.
    """
    gen_starts = np.empty(len(gen_match) + 1, dtype=np.int64)
    ref_starts = np.empty(len(ref_match) + 1, dtype=np.int64)
    fill_chunk_starts(gen, gen_starts)
    fill_chunk_starts(ref, ref_starts)
    width = BLOCK + 2 * HALO
    columns = np.empty((vectors.shape[1], width), dtype=np.float64)
    lines = np.empty((ROWS, width), dtype=np.float64)
    gen_side = Side(gen, gen_starts, gen_match, gen_numbers, gen_ids[0])
    ref_side = Side(ref, ref_starts, ref_match, ref_numbers, ref_ids[0])
    shared = Shared(vectors, excluding, params, columns, lines)
    similar = find_counterparts(gen_side, ref_side, shared)
    pair_words(gen_side, ref_side, shared)
    sums = np.zeros((4, CLASS_COUNT), dtype=np.float64)
    add_by_class(
        gen, gen_logs, ref, ref_logs, gen_ids[0], gen_numbers, gen_ids[1], sums[0], sums[1]
    )
    add_by_class(
        ref, ref_logs, gen, gen_logs, ref_ids[0], ref_numbers, ref_ids[1], sums[2], sums[3]
    )
    combine_shares(sums[0], sums[2], sums[1], sums[3], similar, params, out)
