"""NAS-D: how far the matches lie outside their windows (docs/reference/vcs.md, section 6)."""

from __future__ import annotations

import math

from vcs_numba.jit.kernel import helper
from vcs_numba.kernels.matching import Floats, Sides
from vcs_numba.kernels.sums import pairwise_sum
from vcs_numba.params import EXCESS_PENALTY, LCT, REFERENCE_SMALL_TEXT


@helper
def is_slightly_above_integer(y: int, x: int) -> bool:
    """Whether `y > x` and `0 < frac(y / x) <= 0.5`; then sections 6 and 7 count one chunk less."""
    ratio = y / x
    fraction = ratio - math.floor(ratio)
    return y > x and 0.0 < fraction <= 0.5


@helper
def tolerance_height(y: int, x: int) -> int:
    """Return h_lct, the height in chunks that `lct` multiplies; section 7 calls it kappa."""
    height = math.ceil(y / x)
    return height - 1 if is_slightly_above_integer(y, x) else height


@helper
def offset_from_window(match: int, start: int, end: int) -> int:
    """Count the chunks between a match and its window; 0 inside the window."""
    return max(start - match, match - (end - 1), 0)


@helper
def penalty(offset: int, tolerance: float, y: int, params: Floats) -> float:
    """Return the cost of an offset, as a part of the timeline of length y."""
    charged = offset - tolerance if params[EXCESS_PENALTY] != 0.0 else float(offset)
    cost = charged / y
    return 0.0 if offset <= tolerance else cost


@helper
def distance_score(
    side: int, sides: Sides, x: int, y: int, params: Floats, penalties: Floats
) -> tuple[float, float, float]:
    """Return (NAS-D, P_total, P_max) of x matches on a timeline of length y; writes `penalties` (2, L)."""
    tolerance = params[LCT] * tolerance_height(y, x)
    farthest = 0
    for i in range(x):
        start, end = sides.starts[side, i], sides.ends[side, i]
        offset = offset_from_window(sides.matches[side, i], start, end)
        penalties[side, i] = penalty(offset, tolerance, y, params)
        farthest += max(start, y - end)
    total = pairwise_sum(penalties, side, x)
    largest = farthest / y
    if largest == 0.0:
        # Every window covers the whole timeline: nothing can be misplaced (section 9).
        perfect = total == 0.0 and params[REFERENCE_SMALL_TEXT] == 0.0
        return (1.0 if perfect else 0.0), total, largest
    return 1.0 - total / largest, total, largest
