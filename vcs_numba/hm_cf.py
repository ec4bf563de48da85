"""`hm_cf`: the harmonic mean of coarse and fine similarity in CLIP-CC-Bench (section 14)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import COSINE_LIMIT, NO_COSINES, NOT_FINITE, OK, checked_gas, matrix_error
from vcs_numba.jit.kernel import array, by_element, helper, types
from vcs_numba.kernels.matching import Floats, Similarities
from vcs_numba.kernels.sums import pairwise_sum
from vcs_numba.scores import as_matrix


class HmCf(NamedTuple):
    """HM-CF of one pair, and its parts (docs/reference/vcs.md, section 14). Larger is better.

    Attributes
    ----------
    coarse
        The cosine of the whole texts.
    fine_precision
        Mean similarity of the generated sentences with the most similar sentence of the reference.
    fine_recall
        Mean similarity of the reference's sentences with the most similar generated sentence.
    fine_f1
        Harmonic mean of precision and recall; 0 if one of them is not above 0.
    hm_cf
        Harmonic mean of `coarse` and `fine_f1`; 0 if one of them is not above 0.
    """

    coarse: float
    fine_precision: float
    fine_recall: float
    fine_f1: float
    hm_cf: float


@helper
def positive_harmonic_mean(a: float, b: float) -> float:
    """Return the harmonic mean of two positive numbers; 0 if one of them is not positive."""
    return 2.0 * (a * b) / (a + b) if a > 0.0 and b > 0.0 else 0.0


def _hm_cf(similarity: Similarities, coarse: float, out: Floats) -> int:
    """Write the numbers of one pair to `out` (5,), and return the status of its matrix."""
    rows, columns = similarity.shape
    tops = np.empty((2, max(rows, columns)), dtype=np.float64)
    finite, far = True, False
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
    for k in range(columns):
        far |= abs(tops[1, k]) > COSINE_LIMIT
    for k in range(rows):
        far |= abs(tops[0, k]) > COSINE_LIMIT
    out[0] = coarse
    out[1] = pairwise_sum(tops, 1, columns) / columns
    out[2] = pairwise_sum(tops, 0, rows) / rows
    out[3] = positive_harmonic_mean(out[1], out[2])
    out[4] = positive_harmonic_mean(coarse, out[3])
    if not finite:
        return NOT_FINITE
    return NO_COSINES if far else OK


_HM_CF: Final = by_element(
    _hm_cf,
    lambda element: (array(element, 2, readonly=True), types.float64, array(types.float64, 1)),
)


def hm_cf(similarity: npt.ArrayLike, coarse: float) -> HmCf:
    """Compute HM-CF of one pair from the cosines of its sentences and of its two whole texts.

    Every sentence is matched with the most similar sentence of the other text, at any position.

    Parameters
    ----------
    similarity
        Cosines (n_ref, n_gen) of reference and generated sentences, float32 or float64.
    coarse
        Cosine of the embeddings of the whole texts.

    Returns
    -------
    HmCf
        The numbers of the pair, computed in float64.

    Raises
    ------
    ValueError
        Not two axes, an empty axis, NaN, infinity, or a best match or `coarse` outside [-1, 1] by
        more than rounding. The message names the argument.
    """
    coarse = checked_gas(coarse, "coarse")
    matrix, transposed = as_matrix(similarity, "similarity")
    if transposed:
        matrix = np.ascontiguousarray(matrix.T)
    out: npt.NDArray[Any] = np.empty(len(HmCf._fields))
    status = _HM_CF[matrix.dtype.char].call(matrix, coarse, out)
    if status != OK:
        raise matrix_error(status, "similarity")
    return HmCf._make(out.tolist())
