"""The kernels of `align`: distance and line of one orientation with every intermediate result."""

from __future__ import annotations

from typing import Final

import numpy as np

from vcs_numba.jit.kernel import Kernel, array, types
from vcs_numba.kernels.combine import combine_alignment, combine_global, regularizer
from vcs_numba.kernels.distance import distance_score, offset_from_window, tolerance_height
from vcs_numba.kernels.line import actual_length, ideal_band, line_ratio, segment_limits
from vcs_numba.kernels.matching import Floats, context_band
from vcs_numba.kernels.sums import pairwise_sum
from vcs_numba.kernels.windows import Ints, window_area
from vcs_numba.params import LCT

#: Positions in the output of `EXPLAIN`.
TOTAL_PENALTY, MAX_PENALTY, NAS_D, FLOOR, CEILING, ACTUAL, NAS_L, LIMIT, LIMIT_LCT, HEIGHT, LAS = range(11)


def _explain(
    side: int,
    x: int,
    y: int,
    starts: Ints,
    ends: Ints,
    tops: Floats,
    matches: Ints,
    values: Floats,
    params: Floats,
    bands: Floats,
    distances: Ints,
    penalties: Floats,
    kinds: Ints,
    lengths: Floats,
    floor_path: Ints,
    ceiling_path: Ints,
    out: Floats,
) -> None:
    """Compute distance and line of one orientation with all intermediate results.

    Reads `starts` to `values` and writes `bands` to `ceiling_path`, all in row `side`. `out` receives the
    single numbers.
    """
    for i in range(x):
        bands[side, i] = context_band(tops[side, i], params)
        distances[side, i] = offset_from_window(matches[side, i], starts[side, i], ends[side, i])
    out[LAS] = pairwise_sum(values, side, x) / x
    out[HEIGHT] = tolerance_height(y, x)
    score, total, largest = distance_score(side, matches, starts, ends, x, y, params, penalties)
    out[NAS_D] = score
    out[TOTAL_PENALTY] = total
    out[MAX_PENALTY] = largest
    costs = np.empty((4, y), dtype=np.float64)
    came_from = np.empty((2, 3 * max(x, y)), dtype=np.int64)
    floor, ceiling = ideal_band(side, starts, ends, x, costs, came_from, True, True, floor_path, ceiling_path)
    limit, limit_lct = segment_limits(y, x, params[LCT])
    actual = actual_length(side, matches, x, y, params[LCT], floor_path, lengths, kinds, True)
    out[FLOOR] = floor
    out[CEILING] = ceiling
    out[ACTUAL] = actual
    out[LIMIT] = limit
    out[LIMIT_LCT] = limit_lct
    out[NAS_L] = line_ratio(floor, ceiling, actual)


_INTS = array(types.int64, 2)
_FLOATS = array(types.float64, 2)
_PACKED = array(types.float64, 1)
EXPLAIN: Final = Kernel(
    _explain,
    types.int64,
    types.int64,
    types.int64,
    _INTS,
    _INTS,
    _FLOATS,
    _INTS,
    _FLOATS,
    _PACKED,
    _FLOATS,
    _INTS,
    _FLOATS,
    _INTS,
    _FLOATS,
    _INTS,
    _INTS,
    _PACKED,
)


def _combine(n_ref: int, n_gen: int, starts: Ints, ends: Ints, params: Floats, out: Floats) -> int:
    area = window_area(n_ref, n_gen, starts, ends)
    combine_alignment(out, regularizer(n_ref, n_gen, area, params))
    return area


COMBINE: Final = Kernel(_combine, types.int64, types.int64, _INTS, _INTS, _PACKED, _PACKED)


COMPLETE: Final = Kernel(combine_global, _PACKED, types.float64)
