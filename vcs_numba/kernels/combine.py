"""From the parts of both orientations to the sixteen scores (docs/reference/vcs.md, 5 to 9)."""

from __future__ import annotations

import math

from vcs_numba.jit.kernel import helper, rare
from vcs_numba.kernels.line import Scratch, distance_score, line_score
from vcs_numba.kernels.matching import Floats, Sides
from vcs_numba.kernels.sums import pairwise_sum
from vcs_numba.kernels.windows import PRECISION, window_area
from vcs_numba.params import (
    LENGTH_REGULARIZER,
    NAS_BLEND_FACTOR,
    NAS_COVERAGE_CUTOFF,
    REFERENCE_SMALL_TEXT,
)

#: Positions of the scores in a kernel's output: the order of section 12.
VCS, GAS, LAS, LAS_PRECISION, LAS_RECALL, SAS, NAS, NAS_F1 = range(8)
NAS_D, NAS_D_PRECISION, NAS_D_RECALL, NAS_L, NAS_L_PRECISION, NAS_L_RECALL, REGULARIZER = range(
    8, 15
)
MARGIN = 15
SCORE_COUNT = 16

_LARGEST = 1e308
_TINY = 1e-12


@helper
def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean; 0 if precision + recall is 0."""
    both = precision + recall
    return 2.0 * precision * recall / both if both != 0.0 else 0.0


@helper
def clip01(value: float) -> float:
    """Clip a number to [0, 1]."""
    return min(max(value, 0.0), 1.0)


@helper
def window_regularizer(coverage: float, least: float, params: Floats) -> float:
    """Return R_w, the windows' scaled coverage of the grid.

    0 is the least possible, and 1 is half or more.
    """
    if least >= 1.0:
        return 0.0
    span = 0.5 - least
    if span == 0.0:
        # Two chunks against two or one (section 9): the reference's 0/0 and x/0 both end as 1.
        covered = coverage > least or params[REFERENCE_SMALL_TEXT] != 0.0
        return 1.0 if covered else 0.0
    return clip01((coverage - least) / span)


@rare
def length_regularizer(coverage: float, least: float, imbalance: float, params: Floats) -> float:
    """Blend the window penalty with a penalty for unequal lengths (section 8, last point)."""
    span = params[NAS_COVERAGE_CUTOFF] - least
    window = 0.0 if coverage <= least + 1e-9 else 1.0
    if span > 1e-9:
        window = clip01((coverage - least) / span)
    larger = max(imbalance, window)
    smaller = min(imbalance, window)
    neutral = larger * larger + smaller * (1.0 - larger)
    if neutral >= 1.0 - _TINY:
        return 1.0
    log_window = math.log(max(1.0 - window, _TINY))
    log_neutral = math.log(max(1.0 - neutral, _TINY))
    log_imbalance = math.log(max(1.0 - imbalance, _TINY))
    if abs(log_imbalance - log_window) < _TINY:
        share = 0.5
    else:
        share = clip01((log_neutral - log_window) / (log_imbalance - log_window))
    blend = params[NAS_BLEND_FACTOR]
    if blend >= 0.0:
        share *= 1.0 - blend
    else:
        share += (1.0 - share) * -blend
    return clip01(1.0 - (1.0 - imbalance) ** share * (1.0 - window) ** (1.0 - share))


@helper
def regularizer(n_ref: int, n_gen: int, area: int, params: Floats) -> float:
    """Return the regulariser R of a grid whose direct windows cover `area` cells (section 8)."""
    longer = max(n_ref, n_gen)
    coverage = area / (n_ref * n_gen)
    least = 1.0 / longer
    if params[LENGTH_REGULARIZER] != 0.0:
        imbalance = 1.0 - min(n_ref, n_gen) / longer
        return length_regularizer(coverage, least, imbalance, params)
    return window_regularizer(coverage, least, params)


@helper
def combine_alignment(out: Floats, regularization: float) -> None:
    """Compute the scores that need no GAS from the six precision and recall parts in `out`."""
    out[LAS] = f1(out[LAS_PRECISION], out[LAS_RECALL])
    out[NAS_D] = f1(out[NAS_D_PRECISION], out[NAS_D_RECALL])
    out[NAS_L] = f1(out[NAS_L_PRECISION], out[NAS_L_RECALL])
    out[NAS_F1] = f1(out[NAS_D], out[NAS_L])
    out[REGULARIZER] = regularization
    above = out[NAS_F1] - regularization
    out[NAS] = above / (1.0 - regularization) if above > 0.0 and regularization < 1.0 else 0.0


@helper
def combine_global(out: Floats, gas: float) -> None:
    """Compute GAS, SAS, the margin and VCS from LAS and NAS in `out`."""
    out[GAS] = gas
    las = out[LAS]
    sas = 0.0
    if las > 0.0:
        above = gas - (1.0 - las)
        # Only a GAS above 1 by rounding and a LAS as good as 0 have a quotient beyond float64.
        if 0.0 < above < las * _LARGEST:
            sas = above / las
    out[SAS] = sas
    nas = out[NAS]
    low = min(sas, nas)
    high = max(sas, nas)
    # As the reference rounds it, so that VCS > 0 exactly where margin > 0.
    margin = low - (1.0 - high)
    out[MARGIN] = margin
    out[VCS] = margin / high if margin > 0.0 and high != 0.0 else 0.0


@helper
def score_matches(
    n_ref: int, n_gen: int, sides: Sides, gas: float, params: Floats, scratch: Scratch, out: Floats
) -> None:
    """Write the fields of `Scores` to `out` (16,), from the windows and best matches of a pair."""
    for side in range(2):
        x = n_gen if side == PRECISION else n_ref
        y = n_ref if side == PRECISION else n_gen
        out[LAS_PRECISION + side] = pairwise_sum(sides.values, side, x) / x
        distance, _, _ = distance_score(side, sides, x, y, params, scratch.parts)
        out[NAS_D_PRECISION + side] = distance
        out[NAS_L_PRECISION + side] = line_score(side, sides, x, y, params, scratch)
    area = window_area(n_ref, n_gen, sides.starts, sides.ends)
    combine_alignment(out, regularizer(n_ref, n_gen, area, params))
    combine_global(out, gas)
