"""Words replaced by other words, in matched chunks (docs/reference/vcs.md, section 15).

A text's words come as `Words.packed`, int32 (6, n), with these rows. Memory is linear in the words: the
similarities of a chunk's words are computed once for each pass, in blocks of `BLOCK` words of the reference.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from vcs_numba.jit.kernel import helper, rare
from vcs_numba.kernels.matching import Floats
from vcs_numba.kernels.windows import Ints

#: Rows of `Words.packed`.
STEM, VECTOR, CHUNK, CLASS, NEGATED, EXCLUSION = range(6)
#: Classes of words.
THING, ACTION, QUALITY, NAME = range(4)
CLASS_COUNT = 4
#: Positions in `SubstitutionParams.packed`; the four weights stand in the order of the classes.
LOW, HIGH, FOUND_REACH, PAIR_REACH, CONTEXT_WEIGHT, CONTEXT_CERTAINTY, LEAST_MASS, WEIGHTS = range(8)
#: Rows of the numbers of each word: how much it lacks a counterpart, the weight and the similarity of its pair.
LACK, WEIGHT, SIMILARITY = range(3)

#: Words of the reference that are compared at a time, so that their vectors stay in the core's cache.
BLOCK: Final = 64
#: Words on each side that the context of a word may need.
HALO: Final = 2
#: Rows of similarities that are kept: a word and its neighbours.
ROWS: Final = 2 * HALO + 1

Ids = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@helper
def fill_chunk_starts(words: Ids, starts: Ints) -> None:
    """Write the first word of each chunk, and the number of words after the last one."""
    word = 0
    for c in range(len(starts)):
        while word < words.shape[1] and words[CHUNK, word] < c:
            word += 1
        starts[c] = word


@helper
def within_reach(c: int, d: int, gen_match: Ints, ref_match: Ints, reach: float) -> bool:
    """Return whether one of two chunks lies at most `reach` chunks from the match of the other."""
    return abs(gen_match[c] - d) <= reach or abs(ref_match[d] - c) <= reach


@helper
def ramp(similarity: float, params: Floats) -> float:
    """Return how far a similarity is on the way from "another word" (0) to "a counterpart" (1)."""
    return min(max((similarity - params[LOW]) / (params[HIGH] - params[LOW]), 0.0), 1.0)


@helper
def exclude_each_other(gen: Ids, i: int, ref: Ids, j: int, excluding: Bools) -> bool:
    """Return whether two words of different stems cannot both be true, as "left" and "right"."""
    return gen[STEM, i] != ref[STEM, j] and excluding[gen[EXCLUSION, i], ref[EXCLUSION, j]]


@rare
def gather_columns(ref: Ids, first: int, stop: int, vectors: Vectors, columns: Floats) -> None:
    """Write the vectors of the reference's words first..stop to the columns of `columns` (d, BLOCK + HALOs)."""
    for j in range(first, stop):
        row = ref[VECTOR, j]
        for k in range(vectors.shape[1]):
            columns[k, j - first] = vectors[row, k]


@rare
def compare(
    gen: Ids,
    i: int,
    ref: Ids,
    first: int,
    stop: int,
    vectors: Vectors,
    excluding: Bools,
    columns: Floats,
    line: int,
    out: Floats,
) -> None:
    """Write the similarities of the generated word i to the words first..stop to `out[line]`.

    A product of vectors is summed in float64 from the first component to the last, so a similarity depends on
    two words alone. Four components are added in one pass over the line, in the same order.
    """
    size = vectors.shape[1]
    row = gen[VECTOR, i]
    count = stop - first
    for j in range(count):
        out[line, j] = 0.0
    whole = size - size % 4
    for k in range(0, whole, 4):
        a = np.float64(vectors[row, k])
        b = np.float64(vectors[row, k + 1])
        c = np.float64(vectors[row, k + 2])
        d = np.float64(vectors[row, k + 3])
        for j in range(count):
            total = out[line, j] + a * columns[k, j]
            total += b * columns[k + 1, j]
            total += c * columns[k + 2, j]
            out[line, j] = total + d * columns[k + 3, j]
    for k in range(whole, size):
        a = np.float64(vectors[row, k])
        for j in range(count):
            out[line, j] += a * columns[k, j]
    for j in range(count):
        other = first + j
        if gen[NEGATED, i] != ref[NEGATED, other] or exclude_each_other(gen, i, ref, other, excluding):
            out[line, j] = -1.0
        elif gen[STEM, i] == ref[STEM, other]:
            out[line, j] = 1.0


@helper
def keep_lacks(numbers: Floats, params: Floats) -> None:
    """Turn each word's largest similarity into how much it lacks a counterpart."""
    for i in range(numbers.shape[1]):
        numbers[LACK, i] = 1.0 - ramp(numbers[LACK, i], params)


@helper
def find_counterparts(
    gen: Ids,
    ref: Ids,
    gen_starts: Ints,
    ref_starts: Ints,
    gen_match: Ints,
    ref_match: Ints,
    vectors: Vectors,
    excluding: Bools,
    params: Floats,
    columns: Floats,
    lines: Floats,
    gen_numbers: Floats,
    ref_numbers: Floats,
) -> None:
    """Write how much each word lacks a counterpart on the other side."""
    for i in range(gen_numbers.shape[1]):
        gen_numbers[LACK, i] = -1.0
    for j in range(ref_numbers.shape[1]):
        ref_numbers[LACK, j] = -1.0
    n_ref = len(ref_match)
    for c in range(len(gen_match)):
        begin = gen_starts[c]
        end = gen_starts[c + 1]
        d = 0 if begin < end else n_ref
        while d < n_ref:
            # Neighbouring chunks in reach are one run of words.
            run = d
            while d < n_ref and within_reach(c, d, gen_match, ref_match, params[FOUND_REACH]):
                d += 1
            for first in range(ref_starts[run], ref_starts[d], BLOCK):
                stop = min(first + BLOCK, ref_starts[d])
                gather_columns(ref, first, stop, vectors, columns)
                for i in range(begin, end):
                    compare(gen, i, ref, first, stop, vectors, excluding, columns, 0, lines)
                    for j in range(first, stop):
                        # A word of a list must find its counterpart in a matched chunk itself: the same
                        # number or colour of a neighbouring chunk is said of something else.
                        listed = gen[EXCLUSION, i] != 0 or ref[EXCLUSION, j] != 0
                        if listed and not within_reach(
                            c, ref[CHUNK, j], gen_match, ref_match, params[PAIR_REACH]
                        ):
                            continue
                        similarity = lines[0, j - first]
                        gen_numbers[LACK, i] = max(gen_numbers[LACK, i], similarity)
                        ref_numbers[LACK, j] = max(ref_numbers[LACK, j], similarity)
            d = max(d, run + 1)
    keep_lacks(gen_numbers, params)
    keep_lacks(ref_numbers, params)


@helper
def agreement(
    lines: Floats, i: int, begin: int, end: int, column: int, j: int, start: int, stop: int, step: int
) -> float:
    """Return the largest similarity of the neighbours of two words on one side, inside their chunks.

    `step` is -1 for the left side, 1 for the right. Word i is one of begin..end, and its row in `lines` is
    i % ROWS. Word j is one of start..stop, and stands in the column `column`. Two words that are both the
    outermost of their chunks agree. A word without neighbours beside one with neighbours does not.
    """
    steps_i = end - 1 - i if step > 0 else i - begin
    steps_j = stop - 1 - j if step > 0 else j - start
    if steps_i == 0 and steps_j == 0:
        return 1.0
    if steps_i == 0 or steps_j == 0:
        return -1.0
    near = (i + step) % ROWS
    best = lines[near, column + step]
    if steps_j > 1:
        best = max(best, lines[near, column + 2 * step])
    if steps_i > 1:
        best = max(best, lines[(i + 2 * step) % ROWS, column + step])
    return best


@helper
def may_replace(gen: Ids, i: int, ref: Ids, j: int, excluding: Bools, context: float, params: Floats) -> bool:
    """Return whether one word can stand for the other: by class, by a list, or by its place alone."""
    if gen[CLASS, i] == ref[CLASS, j] or exclude_each_other(gen, i, ref, j, excluding):
        return True
    return context >= params[CONTEXT_CERTAINTY] and gen[CLASS, i] != NAME and ref[CLASS, j] != NAME


@helper
def keep_pair(
    numbers: Floats, partners: Ids, word: int, other: int, weight: float, similarity: float
) -> None:
    """Keep the pair of largest weight of a word; the first one among equals."""
    if weight > numbers[WEIGHT, word]:
        numbers[WEIGHT, word] = weight
        numbers[SIMILARITY, word] = similarity
        partners[word] = other


@helper
def pair_words(
    gen: Ids,
    ref: Ids,
    gen_starts: Ints,
    ref_starts: Ints,
    gen_match: Ints,
    ref_match: Ints,
    vectors: Vectors,
    excluding: Bools,
    params: Floats,
    columns: Floats,
    lines: Floats,
    gen_numbers: Floats,
    ref_numbers: Floats,
    gen_partners: Ids,
    ref_partners: Ids,
) -> None:
    """Write the word that replaced each word, with the weight and the similarity of the pair."""
    rows = np.empty(ROWS, dtype=np.int64)  # the word whose similarities a row of `lines` holds
    for c in range(len(gen_match)):
        begin = gen_starts[c]
        end = gen_starts[c + 1]
        if begin == end:
            continue
        for d in range(len(ref_match)):
            if not within_reach(c, d, gen_match, ref_match, params[PAIR_REACH]):
                continue
            start = ref_starts[d]
            for first in range(start, ref_starts[d + 1], BLOCK):
                stop = min(first + BLOCK, ref_starts[d + 1])
                lacking = 0.0
                for j in range(first, stop):
                    lacking = max(lacking, ref_numbers[LACK, j])
                if lacking == 0.0:
                    continue
                left = max(first - HALO, start)
                right = min(stop + HALO, ref_starts[d + 1])
                gather_columns(ref, left, right, vectors, columns)
                for k in range(ROWS):
                    rows[k] = -1
                for i in range(begin, end):
                    if gen_numbers[LACK, i] == 0.0:
                        continue
                    for near in range(max(i - HALO, begin), min(i + HALO + 1, end)):
                        if rows[near % ROWS] != near:
                            rows[near % ROWS] = near
                            compare(
                                gen, near, ref, left, right, vectors, excluding, columns, near % ROWS, lines
                            )
                    for j in range(first, stop):
                        lack = min(gen_numbers[LACK, i], ref_numbers[LACK, j])
                        if lack == 0.0:
                            continue
                        column = j - left
                        before = agreement(lines, i, begin, end, column, j, start, ref_starts[d + 1], -1)
                        after = agreement(lines, i, begin, end, column, j, start, ref_starts[d + 1], 1)
                        context = (ramp(before, params) + ramp(after, params)) / 2.0
                        if may_replace(gen, i, ref, j, excluding, context, params):
                            part = params[CONTEXT_WEIGHT]
                            weight = lack * ((1.0 - part) + part * context)
                            similarity = lines[i % ROWS, column]
                            keep_pair(gen_numbers, gen_partners, i, j, weight, similarity)
                            keep_pair(ref_numbers, ref_partners, j, i, weight, similarity)


@helper
def class_of_pair(words: Ids, logs: Floats, i: int, others: Ids, other_logs: Floats, j: int) -> int:
    """Return the class of word i that was replaced by, or replaced, word j: the most probable one of both.

    A name stays a name.
    """
    if words[CLASS, i] == NAME or others[CLASS, j] == NAME:
        return words[CLASS, i]
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
    """Write each word's class, and add replaced weights and words by class, in the order of the words."""
    for i in range(words.shape[1]):
        group = np.int64(words[CLASS, i])
        if partners[i] >= 0:
            group = np.int64(class_of_pair(words, logs, i, others, other_logs, partners[i]))
        classes[i] = group
        sums[group] += numbers[WEIGHT, i]
        counts[group] += 1.0


@helper
def combine_shares(
    gen_sums: Floats, ref_sums: Floats, gen_counts: Floats, ref_counts: Floats, params: Floats, out: Floats
) -> None:
    """Write substitution, then the share of each class, to `out` (5,)."""
    top = 0.0
    for k in range(CLASS_COUNT):
        mass = max(params[LEAST_MASS], min(gen_counts[k], ref_counts[k]))
        share = min(gen_sums[k], ref_sums[k]) / mass
        out[1 + k] = share
        top = max(top, params[WEIGHTS + k] * share)
    out[0] = min(top, 1.0)


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
    """Compare the words of one pair of texts.

    Parameters
    ----------
    gen, ref
        `Words.packed` of the generated text and of the reference.
    gen_logs, ref_logs
        float64 (n, 3), log probabilities of the first three classes.
    gen_match, ref_match
        int64: the match of each generated chunk, and of each chunk of the reference.
    vectors
        float32 (types, d).
    excluding
        bool (codes, codes).
    params
        `SubstitutionParams.packed`.
    gen_numbers, ref_numbers
        float64 (3, n), written: LACK, WEIGHT, SIMILARITY.
    gen_ids, ref_ids
        int32 (2, n), written: each word's partner, or -1; its class.
    out
        float64 (5,), written.
    """
    gen_starts = np.empty(len(gen_match) + 1, dtype=np.int64)
    ref_starts = np.empty(len(ref_match) + 1, dtype=np.int64)
    fill_chunk_starts(gen, gen_starts)
    fill_chunk_starts(ref, ref_starts)
    width = BLOCK + 2 * HALO
    columns = np.empty((vectors.shape[1], width), dtype=np.float64)
    lines = np.empty((ROWS, width), dtype=np.float64)
    sums = np.zeros((4, CLASS_COUNT), dtype=np.float64)
    find_counterparts(
        gen, ref, gen_starts, ref_starts, gen_match, ref_match, vectors, excluding, params, columns, lines,
        gen_numbers, ref_numbers,
    )  # fmt: skip
    pair_words(
        gen, ref, gen_starts, ref_starts, gen_match, ref_match, vectors, excluding, params, columns, lines,
        gen_numbers, ref_numbers, gen_ids[0], ref_ids[0],
    )  # fmt: skip
    add_by_class(gen, gen_logs, ref, ref_logs, gen_ids[0], gen_numbers, gen_ids[1], sums[0], sums[1])
    add_by_class(ref, ref_logs, gen, gen_logs, ref_ids[0], ref_numbers, ref_ids[1], sums[2], sums[3])
    combine_shares(sums[0], sums[2], sums[1], sums[3], params, out)
