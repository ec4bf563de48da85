"""The steps of a score as separate kernels, for large matrices in pieces and for `align`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import NO_COSINES, NOT_FINITE, OK
from vcs_numba.jit.kernel import Kernel, Parameter, Type, array, by_element, types
from vcs_numba.jit.threads import for_each, thread_count
from vcs_numba.kernels.combine import score_matches
from vcs_numba.kernels.line import new_scratch
from vcs_numba.kernels.matching import (
    Floats,
    Similarities,
    Stacks,
    are_cosines,
    larger,
    match_columns,
    match_rows,
    sides_of,
)
from vcs_numba.kernels.windows import PRECISION, RECALL, fill_time_windows, fill_windows

#: Least number of values in a piece of work: some tens of microseconds, several times the cost of
#: handing the piece to another thread.
_PIECE: Final = 1 << 16

_INTS = array(types.int64, 2)
_FLOATS = array(types.float64, 2)
_PACKED = array(types.float64, 1)
_STACKS = (array(types.int64, 3), array(types.float64, 3))

_FILL: Final = Kernel(fill_windows, types.int64, types.int64, _INTS, _INTS)
_FILL_TIMED: Final = Kernel(fill_time_windows, _FLOATS, _FLOATS, _INTS, _INTS)


def _rows(
    similarity: Similarities,
    first: int,
    stop: int,
    side: int,
    stacks: Stacks,
    params: Floats,
    column_tops: Similarities,
) -> None:
    match_rows(similarity, first, stop, side, sides_of(stacks), params, column_tops)


def _columns(
    similarity: Similarities,
    first: int,
    stop: int,
    side: int,
    stacks: Stacks,
    params: Floats,
    levels: Floats,
) -> None:
    match_columns(similarity, first, stop, side, sides_of(stacks), params, levels)


def _lines_signature(element: Type) -> tuple[Parameter, ...]:
    matrix = array(element, 2, readonly=True)
    return matrix, types.int64, types.int64, types.int64, _STACKS, _PACKED


_ROWS: Final = by_element(_rows, lambda element: (*_lines_signature(element), array(element, 2)))
_COLUMNS: Final = by_element(_columns, lambda element: (*_lines_signature(element), _FLOATS))


def _merge(column_tops: Similarities, side: int, tops: Floats) -> bool:
    """Merge the pieces' column maxima (pieces, 2, columns) into `tops[side]`.

    False if a maximum is not finite.
    """
    total = 0.0
    for j in range(column_tops.shape[2]):
        top = np.float64(column_tops[0, 0, j])
        for piece in range(1, column_tops.shape[0]):
            other = np.float64(column_tops[piece, 0, j])
            top = larger(other, top) + (other - other)
        total += top - top
        tops[side, j] = top
    return total == 0.0


def _check(n_ref: int, n_gen: int, stacks: Stacks) -> bool:
    return are_cosines(n_ref, n_gen, sides_of(stacks))


_CHECK: Final = Kernel(_check, types.int64, types.int64, _STACKS)
_MERGE: Final = by_element(_merge, lambda element: (array(element, 3), types.int64, _FLOATS))


def match_matrix(
    matrix: npt.NDArray[Any],
    transposed: bool,
    packed: Floats,
    times: tuple[Floats, Floats] | None = None,
) -> Stacks | int:
    """Find the windows and best matches of a matrix (docs/reference/vcs.md, sections 3 and 4).

    Maxima are exact, and each match is found within one piece, so the number of threads changes
    nothing. Returns the status of a matrix that is refused.
    """
    rows, columns = matrix.shape
    n_ref, n_gen = (columns, rows) if transposed else (rows, columns)
    by_row = PRECISION if transposed else RECALL
    longest = max(rows, columns)
    ints, floats = np.empty((3, 2, longest), dtype=np.int64), np.empty((2, 2, longest))
    stacks = ints, floats
    if times:
        _FILL_TIMED.call(*times, ints[0], ints[1])
    else:
        _FILL.call(n_ref, n_gen, ints[0], ints[1])
    code = matrix.dtype.char
    row_cuts = _cuts(rows, matrix.size)
    column_tops = np.full((len(row_cuts) - 1, 2, columns), -np.inf, dtype=matrix.dtype)

    def rows_piece(k: int) -> None:
        _ROWS[code].call(
            matrix, row_cuts[k], row_cuts[k + 1], by_row, stacks, packed, column_tops[k]
        )

    for_each(len(row_cuts) - 1, rows_piece)
    if not _MERGE[code].call(column_tops, 1 - by_row, floats[0]):
        return NOT_FINITE

    levels = np.empty((2, longest))
    column_cuts = _cuts(columns, matrix.size)

    def columns_piece(k: int) -> None:
        _COLUMNS[code].call(
            matrix, column_cuts[k], column_cuts[k + 1], 1 - by_row, stacks, packed, levels
        )

    for_each(len(column_cuts) - 1, columns_piece)
    return stacks if _CHECK.call(n_ref, n_gen, stacks) else NO_COSINES


def _cuts(lines: int, size: int) -> list[int]:
    """Return where to cut `lines` lines of a matrix of `size` values, by threads."""
    threads = thread_count()
    pieces = 1 if threads == 1 else max(min(4 * threads, size // _PIECE, lines), 1)
    return [lines * k // pieces for k in range(pieces + 1)]


def _finish(
    n_ref: int, n_gen: int, stacks: Stacks, gas: float, params: Floats, out: Floats
) -> None:
    scratch = new_scratch(max(n_ref, n_gen))
    score_matches(n_ref, n_gen, sides_of(stacks), gas, params, scratch, out)


_FINISH: Final = Kernel(_finish, types.int64, types.int64, _STACKS, types.float64, _PACKED, _PACKED)


def score_large(
    matrix: npt.NDArray[Any], transposed: bool, gas: float, packed: Floats, out: Floats
) -> int:
    """Write all scores of a matrix to `out` (16,), and return its status."""
    matched = match_matrix(matrix, transposed, packed)
    if isinstance(matched, int):
        return matched
    n_ref, n_gen = matrix.shape[::-1] if transposed else matrix.shape
    _FINISH.call(n_ref, n_gen, matched, gas, packed, out)
    return OK
