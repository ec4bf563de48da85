"""Mean similarity of best matches in both directions, without windows (docs/reference/vcs.md, section 14)."""

from __future__ import annotations

import numpy as np

from vcs_numba.jit.kernel import helper
from vcs_numba.kernels.matching import Floats, Similarities
from vcs_numba.kernels.sums import pairwise_sum

#: Positions of the numbers in a kernel's output.
COARSE, PRECISION, RECALL, F1, HM_CF = range(5)
COUNT = 5


@helper
def positive_harmonic_mean(a: float, b: float) -> float:
    """Return the harmonic mean of two positive numbers; 0 if one of them is not positive."""
    return 2.0 * (a * b) / (a + b) if a > 0.0 and b > 0.0 else 0.0


@helper
def best_matches(similarity: Similarities, coarse: float, tops: Floats, out: Floats) -> bool:
    """Compute the numbers of one pair."""
    rows, columns = similarity.shape
    finite = True
    for j in range(columns):
        tops[1, j] = -np.inf
    for i in range(rows):
        top = -np.inf
        for j in range(columns):
            value = np.float64(similarity[i, j])
            finite = finite and value - value == 0.0
            top = max(top, value)
            tops[1, j] = max(tops[1, j], value)
        tops[0, i] = top
    out[COARSE] = coarse
    out[PRECISION] = pairwise_sum(tops, 1, columns) / columns
    out[RECALL] = pairwise_sum(tops, 0, rows) / rows
    out[F1] = positive_harmonic_mean(out[PRECISION], out[RECALL])
    out[HM_CF] = positive_harmonic_mean(coarse, out[F1])
    return finite
