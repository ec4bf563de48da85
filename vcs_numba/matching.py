"""Best match of each chunk (spec/vcs.md, section 4), both orientations from one pass over the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_numba.jit import helper
from vcs_numba.params import CONTEXT_CUTOFF, CONTEXT_WINDOW
from vcs_numba.windows import Ints

Floats = npt.NDArray[np.float64]
#: A similarity matrix, or values of its type: float32 or float64.
Similarities = npt.NDArray[Any]

#: Values whose rows' maxima are taken before the rows are searched: few enough to stay in the core's first
#: cache, many enough that the guessed-wrong branches of one row's search do not delay the next row's maximum.
_BLOCK = 2048


@helper
def context_band(top: float, params: Floats) -> float:
    """How far below the largest similarity `top` a candidate may lie."""
    spare = (1.0 - params[CONTEXT_CUTOFF]) - (1.0 - top)
    if top > 0.0 and spare > 0.0:
        return spare / top / params[CONTEXT_WINDOW]
    return 0.0


@helper
def at(similarity: Similarities, by_row: bool, line: int, k: int) -> float:
    """Entry k of a row, or of a column, in float64. (A view would cost more than the search in it.)"""
    value: float = np.float64(similarity[line, k]) if by_row else np.float64(similarity[k, line])
    return value


@helper
def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers; written as a selection, which compiles to one instruction on vectors."""
    return a if a > b else b


@helper
def nearest_candidate(
    similarity: Similarities, by_row: bool, line: int, start: int, end: int, level: float
) -> int:
    """The index among those with similarity >= level that the rule of section 4 chooses, in a row or a
    column.

    A candidate inside the window beats all outside, so the search goes from the window outwards and stops at
    the first distance that has a candidate. 0 if there is none at all (a line with NaN, refused later).
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
    both = min(start, count - end)
    for distance in range(1, both + 1):
        before = at(similarity, by_row, line, start - distance)
        after = at(similarity, by_row, line, last + distance)
        # One test for both sides: the larger of the two decides, and of equals the smaller index.
        if larger(after, before) >= level:
            return last + distance if after > before else start - distance
    for distance in range(both + 1, start + 1):
        if at(similarity, by_row, line, start - distance) >= level:
            return start - distance
    for distance in range(both + 1, count - last):
        if at(similarity, by_row, line, last + distance) >= level:
            return last + distance
    return 0


@helper
def row_top(similarity: Similarities, i: int, fold: Similarities) -> Any:
    """Largest value of row i. fold: row 1 is scratch.

    A running maximum waits for itself at every value, so long rows are first folded eight to one.
    """
    count = similarity.shape[1]
    top = similarity[i, 0]
    if count < 64:
        for j in range(1, count):
            top = larger(similarity[i, j], top)
        return top
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
        top = larger(similarity[i, j], top)
    a = b = c = d = top
    for j in range(0, part - 3, 4):
        a = larger(fold[1, j], a)
        b = larger(fold[1, j + 1], b)
        c = larger(fold[1, j + 2], c)
        d = larger(fold[1, j + 3], d)
    for j in range(part // 4 * 4, part):
        a = larger(fold[1, j], a)
    return larger(larger(a, b), larger(c, d))


@helper
def match_lines(
    similarity: Similarities,
    by_row: bool,
    first: int,
    stop: int,
    side: int,
    starts: Ints,
    ends: Ints,
    params: Floats,
    tops: Floats,
    matches: Ints,
    values: Floats,
) -> None:
    """Matches the rows or the columns first..stop, whose maxima stand in `tops`.

    starts, ends, tops: read, matches, values: written, in row `side`, one entry for each line.
    """
    for line in range(first, stop):
        top = tops[side, line]
        level = top - context_band(top, params)
        chosen = nearest_candidate(similarity, by_row, line, starts[side, line], ends[side, line], level)
        matches[side, line] = chosen
        values[side, line] = at(similarity, by_row, line, chosen)


@helper
def match_rows(
    similarity: Similarities,
    first: int,
    stop: int,
    side: int,
    starts: Ints,
    ends: Ints,
    params: Floats,
    tops: Floats,
    matches: Ints,
    values: Floats,
    column_tops: Similarities,
) -> None:
    """Matches the rows first..stop and folds them into the running column maxima.

    Reads each row from memory once: the search that follows finds it in the core's cache.
    column_tops: (2, >= columns) in the matrix's own type; row 0 starts as -inf and afterwards is NaN where
    the column holds NaN or infinity, row 1 is scratch. The other arrays as for `match_lines`, `tops`
    written too.
    """
    columns = similarity.shape[1]
    block = max(_BLOCK // columns, 1)
    done = first
    while done < stop:
        until = min(done + block, stop)
        for i in range(done, until):
            for j in range(columns):
                value = similarity[i, j]
                # The difference is 0, or NaN for NaN and infinity, and NaN stays. (It also keeps the compiler
                # from making this a conditional store, several times slower than the selection.)
                column_tops[0, j] = larger(value, column_tops[0, j]) + (value - value)
            tops[side, i] = row_top(similarity, i, column_tops)
        match_lines(similarity, True, done, until, side, starts, ends, params, tops, matches, values)
        done = until


@helper
def keep_column_tops(column_tops: Similarities, columns: int, side: int, tops: Floats) -> bool:
    """Writes the finished column maxima to `tops[side]`; False if the matrix is not finite throughout."""
    total = 0.0
    for j in range(columns):
        top = np.float64(column_tops[0, j])
        total += top - top
        tops[side, j] = top
    return total == 0.0
