"""NAS-D, and NAS-L: the line through the matches, against the ideal band (sections 6, 7)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vcs_numba.jit.kernel import helper, rare
from vcs_numba.kernels.matching import Floats, Sides
from vcs_numba.kernels.sums import pairwise_sum
from vcs_numba.kernels.windows import Ints
from vcs_numba.params import EXCESS_PENALTY, LCT, REFERENCE_SMALL_TEXT, TIMED


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
    """Return (NAS-D, P_total, P_max) of x matches on a timeline of length y.

    Writes `penalties` (2, L).
    """
    tolerance = params[LCT] * tolerance_height(y, x)
    farthest = 0
    for i in range(x):
        start, end = sides.starts[side, i], sides.ends[side, i]
        offset = offset_from_window(sides.matches[side, i], start, end)
        if params[TIMED] != 0.0:
            tolerance = params[LCT] * (end - start)
        penalties[side, i] = penalty(offset, tolerance, y, params)
        farthest += max(start, y - end)
    total = pairwise_sum(penalties, side, x)
    largest = farthest / y
    if largest == 0.0:
        # Every window covers the whole timeline: nothing can be misplaced (section 9).
        perfect = total == 0.0 and params[REFERENCE_SMALL_TEXT] == 0.0
        return (1.0 if perfect else 0.0), total, largest
    return 1.0 - total / largest, total, largest


#: How a segment's length was computed.
NOT_COUNTED = 0
STANDARD = 1
FLOOR_STEP = 2


class Scratch(NamedTuple):
    """Working memory for the scores of a pair of up to L chunks a side."""

    parts: Floats  # (2, L)
    costs: Floats  # (4, L)
    floor_path: Ints  # (2, L)
    came_from: Ints  # (1, 3 L)


@helper
def new_scratch(longest: int) -> Scratch:
    """Allocate working memory for pairs of up to `longest` chunks a side."""
    return Scratch(
        np.empty((2, longest), dtype=np.float64),
        np.empty((4, longest), dtype=np.float64),
        np.empty((2, longest), dtype=np.int64),
        np.empty((1, 3 * longest), dtype=np.int64),
    )


@helper
def step_length(dy: int) -> float:
    """Return the length of a step of one chunk to the right and dy chunks up or down."""
    return math.sqrt(1.0 + np.float64(dy) * np.float64(dy))


@rare
def trace_path(
    side: int,
    sides: Sides,
    count: int,
    came_from: Ints,
    last: int,
    written: int,
    path: Ints,
) -> None:
    """Follow the predecessors in `came_from` back from row `last` of the last window.

    `written` is the sum of all heights, where the predecessors of the last window end.
    """
    k = last
    for back in range(count):
        i = count - 1 - back
        path[side, i] = sides.starts[side, i] + k
        written -= sides.ends[side, i] - sides.starts[side, i]
        if i > 0:
            k = came_from[written + k]


class BandPaths(NamedTuple):
    """Which ideal lines are traced, and the rows that they pass in each window."""

    with_floor: bool
    with_ceiling: bool
    floor: Ints  # (2, L)
    ceiling: Ints  # (2, L)
    came_from: Ints  # (2, sum of heights), scratch: a row for each line that is traced


@helper
def ideal_band(  # noqa: C901 - one loop over the windows, as in the definition
    side: int, sides: Sides, count: int, costs: Floats, paths: BandPaths
) -> tuple[float, float]:
    """Return (L_min, L_max), the extreme lengths of a line through the windows (section 7).

    Both are 0 for fewer than two windows. `costs` (4, tallest window) is scratch.
    """
    if count < 2:
        return 0.0, 0.0
    starts, ends = sides.starts, sides.ends
    height = ends[side, 0] - starts[side, 0]
    for k in range(height):
        costs[0, k] = 0.0
        costs[1, k] = 0.0
    old = 0
    written = height
    for i in range(1, count):
        new = 2 - old
        shift = starts[side, i] - starts[side, i - 1]
        previous_height = height
        height = ends[side, i] - starts[side, i]
        for k in range(height):
            shortest = np.inf
            longest = -np.inf
            floor_from = 0
            ceiling_from = 0
            for p in range(previous_height):
                step = step_length(shift + k - p)
                # The comparisons are strict, so among equal predecessors the lowest row wins.
                if costs[old, p] + step < shortest:
                    shortest = costs[old, p] + step
                    floor_from = p
                if costs[old + 1, p] + step > longest:
                    longest = costs[old + 1, p] + step
                    ceiling_from = p
            costs[new, k] = shortest
            costs[new + 1, k] = longest
            if paths.with_floor:
                paths.came_from[0, written + k] = floor_from
            if paths.with_ceiling:
                paths.came_from[1, written + k] = ceiling_from
        written += height
        old = new
    floor_end = 0
    ceiling_end = 0
    for k in range(1, height):
        if costs[old, k] < costs[old, floor_end]:
            floor_end = k
        if costs[old + 1, k] > costs[old + 1, ceiling_end]:
            ceiling_end = k
    if paths.with_floor:
        trace_path(side, sides, count, paths.came_from[0], floor_end, written, paths.floor)
    if paths.with_ceiling:
        trace_path(side, sides, count, paths.came_from[1], ceiling_end, written, paths.ceiling)
    return costs[old, floor_end], costs[old + 1, ceiling_end]


@helper
def segment_limits(y: int, x: int, lct: float) -> tuple[int, float]:
    """Return (w0, w_lct): how far a segment may rise to count, without and with the tolerance."""
    height = math.ceil(y / x)
    if y <= x:
        limit = height
    elif is_slightly_above_integer(y, x):
        limit = 2 * height - 2
    else:
        limit = 2 * height - 1
    return limit, limit + tolerance_height(y, x) * lct


@helper
def segment_kind(dy: int, lct: float, limit: int, limit_lct: float) -> int:
    """Return NOT_COUNTED, STANDARD or FLOOR_STEP for a segment that rises by dy."""
    rise = abs(dy) if lct > 0.0 else dy
    if 0 <= rise <= limit:
        return STANDARD
    if lct > 0.0 and limit < rise <= limit_lct:
        return FLOOR_STEP
    return NOT_COUNTED


@helper
def timed_segment_kind(dy: int, lct: float, side: int, sides: Sides, i: int) -> int:
    """Return the kind of the segment after chunk i, whose windows are by time (section 16)."""
    start, end = sides.starts[side, i + 1], sides.ends[side, i + 1]
    lowest = min(start - (sides.ends[side, i] - 1), 0)
    highest = end - 1 - sides.starts[side, i]
    if lowest <= dy <= highest:
        return STANDARD
    reach = lct * (end - start)
    return FLOOR_STEP if lct > 0.0 and lowest - reach <= dy <= highest + reach else NOT_COUNTED


class Segments(NamedTuple):
    """The segments of the line through the matches."""

    lengths: Floats  # (2, L)
    kinds: Ints  # (2, L), written if `with_kinds`
    with_kinds: bool


@helper
def actual_length(
    side: int, sides: Sides, x: int, y: int, params: Floats, floor_path: Ints, segments: Segments
) -> float:
    """Return L_act, the length of the line through the matches, and write its segments."""
    matches, lct = sides.matches, params[LCT]
    limit, limit_lct = segment_limits(y, x, lct)
    for i in range(x - 1):
        dy = matches[side, i + 1] - matches[side, i]
        if params[TIMED] != 0.0:
            kind = timed_segment_kind(dy, lct, side, sides, i)
        else:
            kind = segment_kind(dy, lct, limit, limit_lct)
        if kind == FLOOR_STEP:
            dy = floor_path[side, i + 1] - floor_path[side, i]
        length = step_length(dy)
        segments.lengths[side, i] = 0.0 if kind == NOT_COUNTED else length
        if segments.with_kinds:
            segments.kinds[side, i] = kind
    return pairwise_sum(segments.lengths, side, x - 1)


@helper
def line_ratio(floor: float, ceiling: float, actual: float) -> float:
    """Return NAS-L of one orientation: 1 inside the ideal band, else a ratio of lengths."""
    if floor <= actual <= ceiling:
        return 1.0
    if actual < floor:
        return actual / floor if floor != 0.0 else 0.0
    return ceiling / actual if actual != 0.0 else 0.0


@helper
def line_score(side: int, sides: Sides, x: int, y: int, params: Floats, scratch: Scratch) -> float:
    """Compute NAS-L of one orientation without what only reports need."""
    path = scratch.floor_path
    # Only a tolerance above 0 needs the floor path. The ceiling path and the kinds are not written.
    paths = BandPaths(params[LCT] > 0.0, False, path, path, scratch.came_from)
    floor, ceiling = ideal_band(side, sides, x, scratch.costs, paths)
    segments = Segments(scratch.parts, sides.matches, False)
    actual = actual_length(side, sides, x, y, params, path, segments)
    return line_ratio(floor, ceiling, actual)
