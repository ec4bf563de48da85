"""The kernels of `align`: distance and line of one orientation with every intermediate result."""

from __future__ import annotations

from typing import Final

import numpy as np

from vcs_numba.jit.kernel import Kernel, array, types
from vcs_numba.kernels.combine import combine_alignment, combine_global, regularizer
from vcs_numba.kernels.line import (
    actual_length,
    distance_score,
    ideal_band,
    line_ratio,
    offset_from_window,
    segment_limits,
    tolerance_height,
)
from vcs_numba.kernels.matching import Floats, context_band, sides_of
from vcs_numba.kernels.sums import pairwise_sum
from vcs_numba.kernels.windows import Ints, window_area
from vcs_numba.params import LCT

#: Positions in the output of `EXPLAIN`.
TOTAL_PENALTY, MAX_PENALTY, NAS_D, FLOOR, CEILING, ACTUAL, NAS_L, LIMIT, LIMIT_LCT, HEIGHT, LAS = range(11)


def _explain(
    side: int, x: int, y: int, side_ints: Ints, side_floats: Floats, params: Floats,
    ints: Ints, floats: Floats, out: Floats,
) -> None:  # fmt: skip
    """Compute distance and line of one orientation with all that they result from.

    Writes distances, kinds of segments, floor and ceiling path to the row `side` of `ints` (4, 2, L), context
    bands, penalties and lengths of segments to that of `floats` (3, 2, L), and single numbers to `out` (11,).
    """
    sides = sides_of(side_ints, side_floats)
    distances, kinds, floor_path, ceiling_path = ints[0], ints[1], ints[2], ints[3]
    bands, penalties, lengths = floats[0], floats[1], floats[2]
    for i in range(x):
        bands[side, i] = context_band(sides.tops[side, i], params)
        start, end = sides.starts[side, i], sides.ends[side, i]
        distances[side, i] = offset_from_window(sides.matches[side, i], start, end)
    out[LAS] = pairwise_sum(sides.values, side, x) / x
    out[HEIGHT] = tolerance_height(y, x)
    score, total, largest = distance_score(side, sides, x, y, params, penalties)
    out[NAS_D] = score
    out[TOTAL_PENALTY] = total
    out[MAX_PENALTY] = largest
    costs = np.empty((4, y), dtype=np.float64)
    came_from = np.empty((2, 3 * max(x, y)), dtype=np.int64)
    floor, ceiling = ideal_band(side, sides, x, costs, came_from, True, True, floor_path, ceiling_path)
    lct = params[LCT]
    limit, limit_lct = segment_limits(y, x, lct)
    actual = actual_length(side, sides.matches, x, y, lct, floor_path, lengths, kinds, True)
    out[FLOOR] = floor
    out[CEILING] = ceiling
    out[ACTUAL] = actual
    out[LIMIT] = limit
    out[LIMIT_LCT] = limit_lct
    out[NAS_L] = line_ratio(floor, ceiling, actual)


_INT = types.int64
_INTS = array(types.int64, 2)
_STACK = array(types.int64, 3), array(types.float64, 3)
_PACKED = array(types.float64, 1)
EXPLAIN: Final = Kernel(_explain, _INT, _INT, _INT, *_STACK, _PACKED, *_STACK, _PACKED)


def _combine(n_ref: int, n_gen: int, starts: Ints, ends: Ints, params: Floats, out: Floats) -> int:
    area = window_area(n_ref, n_gen, starts, ends)
    combine_alignment(out, regularizer(n_ref, n_gen, area, params))
    return area


COMBINE: Final = Kernel(_combine, types.int64, types.int64, _INTS, _INTS, _PACKED, _PACKED)


COMPLETE: Final = Kernel(combine_global, _PACKED, types.float64)
