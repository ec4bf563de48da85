"""Which words of two texts have no counterpart near the matched chunks (docs/reference/vcs.md, section 15).

A text's words come as `Words.packed`, int32 (6, n), with these rows. Memory is linear in the words, because
similarities are computed in blocks of `BLOCK` words of the reference, and once more where words are paired.
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
#: Rows of each word's numbers: how much it lacks a counterpart, and the weight and similarity of its pair.
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
    return bool(abs(gen_match[c] - d) <= reach) or bool(abs(ref_match[d] - c) <= reach)


@helper
def ramp(similarity: float, params: Floats) -> float:
    """Return how far a similarity is on the way from "another word" (0) to "a counterpart" (1)."""
    part: float = (similarity - params[LOW]) / (params[HIGH] - params[LOW])
    return min(max(part, 0.0), 1.0)


@helper
def exclude_each_other(gen: Ids, i: int, ref: Ids, j: int, excluding: Bools) -> bool:
    """Return whether two words of different stems cannot both be true, as "left" and "right"."""
    return bool(gen[STEM, i] != ref[STEM, j]) and bool(excluding[gen[EXCLUSION, i], ref[EXCLUSION, j]])


@rare
def gather_columns(ref: Ids, first: int, stop: int, vectors: Vectors, columns: Floats) -> None:
    """Write the vectors of the reference's words first..stop to the columns of `columns`."""
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
