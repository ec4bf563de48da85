"""Mapping windows: where each chunk is expected on the other timeline (section 3)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vcs_numba.jit.kernel import helper

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: First index of the per-orientation arrays throughout the package.
PRECISION = 0
RECALL = 1


@helper
def direct_windows(n_long: int, n_short: int, side: int, starts: Ints, ends: Ints) -> None:
    """Write the half-open window of each position of the shorter text.

    Windows are in positions of the longer text.
    """
    slope = n_long / n_short
    height = math.ceil(slope)
    for i in range(n_short):
        # The float64 product decides, with its rounding errors, as in the reference package.
        start = math.floor(i * slope)
        starts[side, i] = start
        ends[side, i] = min(start + height, n_long)


@helper
def reverse_windows(n_long: int, n_short: int, side: int, starts: Ints, ends: Ints) -> None:
    """Write the window of each longer position: the short ones whose windows hold it.

    The other row already holds the direct windows. They move monotonically, so the windows that
    hold a position are neighbours: from the first window that ends after it to the last that starts
    at or before it.
    """
    direct = 1 - side
    first = 0
    last = -1
    for j in range(n_long):
        while first < n_short and ends[direct, first] <= j:
            first += 1
        while last + 1 < n_short and starts[direct, last + 1] <= j:
            last += 1
        if first <= last:
            starts[side, j] = first
            ends[side, j] = last + 1
        elif j < starts[direct, 0]:
            starts[side, j] = 0
            ends[side, j] = 1
        else:
            starts[side, j] = n_short - 1
            ends[side, j] = n_short


@helper
def fill_windows(n_ref: int, n_gen: int, starts: Ints, ends: Ints) -> None:
    """Write the windows of both orientations: n_gen in row PRECISION, n_ref in row RECALL."""
    direct = PRECISION if n_ref >= n_gen else RECALL
    longer = max(n_ref, n_gen)
    shorter = min(n_ref, n_gen)
    direct_windows(longer, shorter, direct, starts, ends)
    reverse_windows(longer, shorter, 1 - direct, starts, ends)


@helper
def time_windows(times: Floats, other: Floats, side: int, starts: Ints, ends: Ints) -> None:
    """Write the window of each segment of `times` (n, 2) among the segments of `other` (m, 2).

    It reaches from the first to the last segment that overlaps. Without one, it is the segment
    nearest in time, and the first of several.
    """
    for i in range(times.shape[0]):
        first, last, nearest = -1, -1, 0
        smallest = np.inf
        for j in range(other.shape[0]):
            gap = max(times[i, 0] - other[j, 1], other[j, 0] - times[i, 1])
            if gap < 0.0:  # segments that only touch do not overlap
                last = j
                first = j if first < 0 else first
            elif gap < smallest:
                smallest, nearest = gap, j
        starts[side, i] = first if first >= 0 else nearest
        ends[side, i] = (last if first >= 0 else nearest) + 1


@helper
def fill_time_windows(ref_times: Floats, gen_times: Floats, starts: Ints, ends: Ints) -> None:
    """Write the windows of both orientations by time (docs/reference/vcs.md, section 16)."""
    time_windows(gen_times, ref_times, PRECISION, starts, ends)
    time_windows(ref_times, gen_times, RECALL, starts, ends)


@helper
def window_area(n_ref: int, n_gen: int, starts: Ints, ends: Ints) -> int:
    """Count the cells of the grid inside the shorter text's windows, for the window regulariser."""
    orientation = RECALL if n_gen > n_ref else PRECISION
    area = 0
    for i in range(min(n_ref, n_gen)):
        area += ends[orientation, i] - starts[orientation, i]
    return area
