"""Best match of each chunk, both orientations in one pass (docs/reference/vcs.md, section 4)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import COSINE_LIMIT
from vcs_numba.jit.kernel import helper, rare
from vcs_numba.kernels.windows import PRECISION, RECALL, Ints
from vcs_numba.params import CONTEXT_CUTOFF, CONTEXT_WINDOW

Floats = npt.NDArray[np.float64]
#: A similarity matrix, or values of its type: float32 or float64.
Similarities = npt.NDArray[Any]

#: Values whose rows' maxima are taken before the rows are searched: few enough to stay in the
#: core's first cache, and so many that mispredicted branches of one row's search do not delay the
#: next row's maximum.
_BLOCK = 2048
#: Distance from the window up to which a column is searched by itself, in a matrix above _CACHED
#: values.
_NEAR = 48
#: Values that fit the core's second cache, where walking down a column needs no memory access.
_CACHED = 1 << 16
#: Columns that are tested for candidates at once.
_STRETCH = 64


class Sides(NamedTuple):
    """Arrays of both orientations: rows PRECISION and RECALL, max(n_ref, n_gen) columns or more."""

    starts: Ints  # half-open windows
    ends: Ints
    matches: Ints  # positions of the best matches
    tops: Floats  # similarities of the most similar chunks
    values: Floats  # similarities of the matches


#: The arrays of `Sides` in two stacks: int64 (3, 2, L) and float64 (2, 2, L).
Stacks = tuple[Ints, Floats]


@helper
def sides_of(stacks: Stacks) -> Sides:
    """Return the arrays of two stacks by name."""
    ints, floats = stacks
    return Sides(ints[0], ints[1], ints[2], floats[0], floats[1])


@helper
def new_sides(longest: int) -> Sides:
    """Allocate the arrays for texts of up to `longest` chunks."""
    ints = np.empty((3, 2, longest), dtype=np.int64)
    floats = np.empty((2, 2, longest), dtype=np.float64)
    return sides_of((ints, floats))


@helper
def context_band(top: float, params: Floats) -> float:
    """Return how far below the largest similarity `top` a candidate may lie."""
    spare = (1.0 - params[CONTEXT_CUTOFF]) - (1.0 - top)
    band = 0.0
    if top > 0.0 and spare > 0.0:
        band = spare / top / params[CONTEXT_WINDOW]
    return band


@helper
def at(similarity: Similarities, by_row: bool, line: int, k: int) -> float:
    """Return entry k of a row, or of a column, in float64.

    A view of the line would cost more than the search in it.
    """
    return np.float64(similarity[line, k]) if by_row else np.float64(similarity[k, line])


@helper
def larger(a: Any, b: Any) -> Any:
    """Return the larger of two numbers, as a selection that compiles to one vector instruction."""
    return a if a > b else b


@helper
def nearest_candidate(
    similarity: Similarities,
    by_row: bool,
    line: int,
    start: int,
    end: int,
    level: float,
    reach: int,
) -> int:
    """Choose the best match of a row or column by the rule of section 4.

    A candidate inside the window beats all outside. So the search goes outwards from the window and
    stops at the first distance with a candidate. Returns -1 if there is none up to the distance
    `reach`.
    """
    chosen = -1
    largest = level
    for k in range(start, end):
        value = at(similarity, by_row, line, k)
        if value > largest or (chosen < 0 and value >= level):
            chosen = k
            largest = value
    if chosen >= 0:
        return chosen
    count = similarity.shape[1] if by_row else similarity.shape[0]
    last = end - 1
    reach_before = min(start, reach)
    reach_after = min(count - end, reach)
    both = min(reach_before, reach_after)
    for distance in range(1, both + 1):
        before = at(similarity, by_row, line, start - distance)
        after = at(similarity, by_row, line, last + distance)
        # One test for both sides: the larger value is the match, or the smaller index of equal
        # values.
        if larger(after, before) >= level:
            return last + distance if after > before else start - distance
    for distance in range(both + 1, reach_before + 1):
        if at(similarity, by_row, line, start - distance) >= level:
            return start - distance
    for distance in range(both + 1, reach_after + 1):
        if at(similarity, by_row, line, last + distance) >= level:
            return last + distance
    return -1


@helper
def row_top(similarity: Similarities, i: int, fold: Similarities) -> Any:
    """Return the largest value of row i; row 1 of `fold` is scratch.

    Each step of a running maximum waits for the step before. So four maxima run in parallel, and
    long rows are first folded eight to one.
    """
    count = similarity.shape[1]
    top = similarity[i, 0]
    a = b = c = d = top
    if count < 64:
        for j in range(0, count - 3, 4):
            a = larger(similarity[i, j], a)
            b = larger(similarity[i, j + 1], b)
            c = larger(similarity[i, j + 2], c)
            d = larger(similarity[i, j + 3], d)
        for j in range(count // 4 * 4, count):
            a = larger(similarity[i, j], a)
        return larger(larger(a, b), larger(c, d))
    part = count // 8
    for j in range(part):
        fold[1, j] = larger(
            larger(
                larger(similarity[i, j], similarity[i, part + j]),
                larger(similarity[i, 2 * part + j], similarity[i, 3 * part + j]),
            ),
            larger(
                larger(similarity[i, 4 * part + j], similarity[i, 5 * part + j]),
                larger(similarity[i, 6 * part + j], similarity[i, 7 * part + j]),
            ),
        )
    for j in range(8 * part, count):
        a = larger(similarity[i, j], a)
    for j in range(0, part - 3, 4):
        a = larger(fold[1, j], a)
        b = larger(fold[1, j + 1], b)
        c = larger(fold[1, j + 2], c)
        d = larger(fold[1, j + 3], d)
    for j in range(part // 4 * 4, part):
        a = larger(fold[1, j], a)
    return larger(larger(a, b), larger(c, d))


@helper
def match_rows(
    similarity: Similarities,
    first: int,
    stop: int,
    side: int,
    sides: Sides,
    params: Floats,
    column_tops: Similarities,
) -> None:
    """Match the rows first..stop of a matrix and update the running column maxima.

    Each row is read from memory once; the search that follows finds it in the core's cache. Row 0
    of `column_tops` starts as -inf, and ends as NaN where a column holds NaN or infinity; row 1 is
    scratch.
    """
    columns = similarity.shape[1]
    block = max(_BLOCK // columns, 1)
    done = first
    while done < stop:
        until = min(done + block, stop)
        for i in range(done, until):
            for j in range(columns):
                value = similarity[i, j]
                # The difference is 0, or NaN for NaN and infinity, and a NaN stays NaN. It also
                # keeps the compiler from a conditional store, which is several times slower than
                # the selection.
                column_tops[0, j] = larger(value, column_tops[0, j]) + (value - value)
            sides.tops[side, i] = row_top(similarity, i, column_tops)
        for i in range(done, until):
            level = sides.tops[side, i] - context_band(sides.tops[side, i], params)
            chosen = nearest_candidate(
                similarity, True, i, sides.starts[side, i], sides.ends[side, i], level, columns
            )
            # A row with NaN may have no candidate; the caller refuses the matrix later.
            sides.matches[side, i] = max(chosen, 0)
            sides.values[side, i] = similarity[i, sides.matches[side, i]]
        done = until


@helper
def keep_column_tops(column_tops: Similarities, columns: int, side: int, tops: Floats) -> bool:
    """Write the finished column maxima to `tops[side]`.

    False if the matrix holds NaN or infinity.
    """
    total = 0.0
    for j in range(columns):
        top = np.float64(column_tops[0, j])
        total += top - top
        tops[side, j] = top
    return total == 0.0


@helper
def are_cosines(n_ref: int, n_gen: int, sides: Sides) -> bool:
    """Return whether all maxima and matches lie within [-1, 1], but for rounding."""
    far = False
    for side, count in ((PRECISION, n_gen), (RECALL, n_ref)):
        for k in range(count):
            far |= sides.tops[side, k] > COSINE_LIMIT or sides.values[side, k] < -COSINE_LIMIT
    return not far


@rare
def match_open_columns(
    similarity: Similarities, first: int, stop: int, side: int, sides: Sides, levels: Floats
) -> None:
    """Match the columns whose level is finite, row by row.

    Candidates are rare, so a stretch of a row is tested at once. A column's best match so far is in
    `sides.matches`, at first -1. Rows come in ascending order, so among equal candidates the first
    stays.
    """
    for i in range(similarity.shape[0]):
        stretch = first
        while stretch < stop:
            until = min(stretch + _STRETCH, stop)
            # Views that start at 0: in a range with another start each index would be tested for
            # its sign.
            stretch_values = similarity[i, stretch:until]
            stretch_levels = levels[side, stretch:until]
            hits = 0
            for k in range(stretch_values.shape[0]):
                hits += stretch_values[k] >= stretch_levels[k]
            if hits > 0:
                for j in range(stretch, until):
                    value = np.float64(similarity[i, j])
                    if value >= levels[side, j]:
                        old = sides.matches[side, j]
                        start = sides.starts[side, j]
                        last = sides.ends[side, j] - 1
                        distance = max(start - i, i - last)
                        old_distance = max(start - old, old - last)
                        if (
                            old < 0
                            or distance < old_distance
                            or (distance == old_distance and value > sides.values[side, j])
                        ):
                            sides.matches[side, j] = i
                            sides.values[side, j] = value
            stretch = until


@helper
def match_columns(
    similarity: Similarities,
    first: int,
    stop: int,
    side: int,
    sides: Sides,
    params: Floats,
    levels: Floats,
) -> None:
    """Match the columns first..stop of a finite matrix.

    Most columns have a candidate near their window. The others are searched column by column if
    they are few, else in one more pass over the rows: walking far down a column costs a cache line
    for each value. `levels` is scratch of the form of `sides.tops`.
    """
    rows = similarity.shape[0]
    near = _NEAR if similarity.size > _CACHED else rows
    open_columns = 0
    for j in range(first, stop):
        level = sides.tops[side, j] - context_band(sides.tops[side, j], params)
        chosen = nearest_candidate(
            similarity, False, j, sides.starts[side, j], sides.ends[side, j], level, near
        )
        sides.matches[side, j] = chosen
        if chosen >= 0:
            sides.values[side, j] = similarity[chosen, j]
            levels[side, j] = np.inf
        else:
            levels[side, j] = level
            open_columns += 1
    if 4 * open_columns > stop - first:
        match_open_columns(similarity, first, stop, side, sides, levels)
    elif open_columns > 0:
        for j in range(first, stop):
            if sides.matches[side, j] < 0:
                chosen = nearest_candidate(
                    similarity,
                    False,
                    j,
                    sides.starts[side, j],
                    sides.ends[side, j],
                    levels[side, j],
                    rows,
                )
                sides.matches[side, j] = chosen
                sides.values[side, j] = similarity[chosen, j]
