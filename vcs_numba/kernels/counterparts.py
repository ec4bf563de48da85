"""Words of two texts without a counterpart near the matched chunks (section 15).

A text's words come as `Words.packed`, int32 (6, n), with these rows. Memory is linear in the words,
because similarities are computed in blocks of `BLOCK` words of the reference, and once more where
words are paired.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
#: Positions in `SubstitutionParams.packed`.
LOW, HIGH, FOUND_REACH, PAIR_REACH, CONTEXT_WEIGHT, CONTEXT_CERTAINTY, LEAST_MASS = range(7)
THING_WEIGHT, REWORDING = 7, 8
#: Rows of each word's numbers: how much it lacks a counterpart, and the weight and similarity of
#: its pair.
LACK, WEIGHT, SIMILARITY = range(3)

#: Words of the reference that are compared at a time, so that their vectors stay in the core's
#: cache.
BLOCK: Final = 64
#: Words on each side that the context of a word may need.
HALO: Final = 2
#: Rows of similarities that are kept: a word and its neighbours.
ROWS: Final = 2 * HALO + 1

Ids = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class Side(NamedTuple):
    """The n words of one text, and the results of their comparison with the other text."""

    words: Ids  # `Words.packed`
    logs: Floats  # `Words.log_class`
    starts: Ints  # the first word of each chunk, and n
    matches: Ints  # the match of each chunk
    numbers: Floats  # (3, n): LACK, WEIGHT and SIMILARITY
    partners: Ids  # (n,), at first -1
    classes: Ids  # (n,)


#: Arguments of a kernel for one text: words, logs, matches, numbers, and partners beside classes as
#: int32 (2, n).
Text = tuple[Ids, Floats, Ints, Floats, Ids]


@helper
def side_of(text: Text) -> Side:
    """Return the arrays of one text by name."""
    words, logs, matches, numbers, ids = text
    starts = np.empty(len(matches) + 1, dtype=np.int64)
    fill_chunk_starts(words, starts)
    return Side(words, logs, starts, matches, numbers, ids[0], ids[1])


class Shared(NamedTuple):
    """Vectors, exclusions and constants for both texts, and working memory."""

    vectors: Vectors
    excluding: Bools
    params: Floats
    columns: Floats
    lines: Floats


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
    return bool(gen[STEM, i] != ref[STEM, j]) and bool(
        excluding[gen[EXCLUSION, i], ref[EXCLUSION, j]]
    )


@rare
def gather_columns(ref: Ids, first: int, stop: int, shared: Shared) -> None:
    """Write the vectors of the reference's words first..stop to the columns of `shared.columns`."""
    vectors, columns = shared.vectors, shared.columns
    for j in range(first, stop):
        row = ref[VECTOR, j]
        for k in range(vectors.shape[1]):
            columns[k, j - first] = vectors[row, k]


@rare
def compare(gen: Ids, i: int, ref: Ids, first: int, stop: int, shared: Shared, line: int) -> None:
    """Write similarities of generated word i to words first..stop to `shared.lines[line]`.

    A product of vectors is summed in float64 from the first component to the last, so a similarity
    depends on two words alone. Four components are added in one pass over the line, in the same
    order.
    """
    vectors, columns, out = shared.vectors, shared.columns, shared.lines
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
        if gen[NEGATED, i] != ref[NEGATED, other] or exclude_each_other(
            gen, i, ref, other, shared.excluding
        ):
            out[line, j] = -1.0
        elif gen[STEM, i] == ref[STEM, other]:
            out[line, j] = 1.0


@helper
def keep_lacks(numbers: Floats, params: Floats) -> float:
    """Turn similarities into lacks, and return the share of words with a similar counterpart."""
    similar = 0.0
    for i in range(numbers.shape[1]):
        if params[HIGH] <= numbers[LACK, i] < 1.0:
            similar += 1.0
        numbers[LACK, i] = 1.0 - ramp(numbers[LACK, i], params)
    return similar / np.float64(max(params[LEAST_MASS], numbers.shape[1]))


@helper
def find_counterparts(gen: Side, ref: Side, shared: Shared) -> float:
    """Write how much each word lacks a counterpart, and return the share of similar words."""
    for i in range(gen.numbers.shape[1]):
        gen.numbers[LACK, i] = -1.0
    for j in range(ref.numbers.shape[1]):
        ref.numbers[LACK, j] = -1.0
    params = shared.params
    n_ref = len(ref.matches)
    for c in range(len(gen.matches)):
        begin = gen.starts[c]
        end = gen.starts[c + 1]
        d = 0 if begin < end else n_ref
        while d < n_ref:
            # Neighbouring chunks in reach are one run of words.
            run = d
            while d < n_ref and within_reach(c, d, gen.matches, ref.matches, params[FOUND_REACH]):
                d += 1
            for first in range(ref.starts[run], ref.starts[d], BLOCK):
                stop = min(first + BLOCK, ref.starts[d])
                gather_columns(ref.words, first, stop, shared)
                for i in range(begin, end):
                    compare(gen.words, i, ref.words, first, stop, shared, 0)
                    for j in range(first, stop):
                        # A word of a list needs its counterpart in a matched chunk: the same number
                        # or colour in a neighbouring chunk describes something else.
                        listed = gen.words[EXCLUSION, i] != 0 or ref.words[EXCLUSION, j] != 0
                        chunk = ref.words[CHUNK, j]
                        if listed and not within_reach(
                            c, chunk, gen.matches, ref.matches, params[PAIR_REACH]
                        ):
                            continue
                        similarity = shared.lines[0, j - first]
                        gen.numbers[LACK, i] = max(gen.numbers[LACK, i], similarity)
                        ref.numbers[LACK, j] = max(ref.numbers[LACK, j], similarity)
            d = max(d, run + 1)
    return min(keep_lacks(gen.numbers, params), keep_lacks(ref.numbers, params))
