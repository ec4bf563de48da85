"""`hm_cf`: the harmonic mean of coarse and fine similarity, as CLIP-CC-Bench defines it (section 14)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import checked_gas, not_finite_error, overflow_error
from vcs_numba.jit.kernel import array, by_element, types
from vcs_numba.kernels.best_matches import COUNT, best_matches
from vcs_numba.kernels.matching import Floats, Similarities
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


def _hm_cf(similarity: Similarities, coarse: float, out: Floats) -> bool:
    tops = np.empty((2, max(similarity.shape)), dtype=np.float64)
    return best_matches(similarity, coarse, tops, out)


_HM_CF: Final = by_element(
    _hm_cf,
    lambda element: (array(element, 2, readonly=True), types.float64, array(types.float64, 1)),
)


def hm_cf(similarity: npt.ArrayLike, coarse: float) -> HmCf:
    """Compute HM-CF of one pair from the cosines of its sentences and of its two whole texts.

    Every sentence is matched with the most similar one of the other text, wherever it stands.

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
        Not two axes, an empty axis, NaN, infinity, or a `coarse` outside [-1, 1] by more than rounding. The
        message names the argument.
    """
    coarse = checked_gas(coarse, "coarse")
    matrix, transposed = as_matrix(similarity, "similarity")
    if transposed:
        matrix = np.ascontiguousarray(matrix.T)
    out: npt.NDArray[Any] = np.empty(COUNT)
    if not _HM_CF[matrix.dtype.char].call(matrix, coarse, out):
        raise not_finite_error("similarity")
    if not np.isfinite(out).all():
        raise overflow_error("similarity")
    return HmCf._make(out.tolist())
