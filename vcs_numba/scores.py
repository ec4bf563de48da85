"""`Scores` and `score_similarity`: one pair's similarity matrix in, fifteen numbers out."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import FLOAT32, FLOAT64, as_float_array, checked_gas, not_finite, overflowing
from vcs_numba.combine import SCORE_COUNT, score_matches
from vcs_numba.jit import array, by_element, helper, types
from vcs_numba.large import score_large
from vcs_numba.matching import Floats, Similarities, keep_column_tops, match_columns, match_rows
from vcs_numba.params import DEFAULT_PARAMS, Params, checked_params
from vcs_numba.windows import PRECISION, RECALL, fill_windows

#: Status of a scored pair.
OK: Final = 0
NOT_FINITE: Final = 1
OVERFLOW: Final = 2

#: A matrix with this many values is scored by all cores.
LARGE: Final = 1 << 18


class Scores(NamedTuple):
    """The scores of one pair, all float (section 12). Larger is better, but for the regulariser.

    vcs: the Video Comprehension Score, 0 to 1. gas: global alignment, the cosine given. las*: local
    alignment. sas: GAS scaled by LAS. nas*: narrative alignment; nas_d* by distance, nas_l* by line.
    window_regularizer: the part of NAS that a shuffled narrative would reach.
    """

    vcs: float
    gas: float
    las: float
    las_precision: float
    las_recall: float
    sas: float
    nas: float
    nas_f1: float
    nas_d: float
    nas_d_precision: float
    nas_d_recall: float
    nas_l: float
    nas_l_precision: float
    nas_l_recall: float
    window_regularizer: float

    def to_dict(self) -> dict[str, float]:
        """The scores by name, in the order of the fields."""
        return self._asdict()

    def to_reference_dict(self) -> dict[str, float]:
        """The scores under the names that the reference package gives them."""
        return {REFERENCE_NAMES[name]: value for name, value in self._asdict().items()}


#: Our name of a score -> the reference package's.
REFERENCE_NAMES: Final = {
    "vcs": "VCS",
    "gas": "GAS",
    "las": "LAS",
    "las_precision": "Precision LAS",
    "las_recall": "Recall LAS",
    "sas": "GAS-LAS-Scaled",
    "nas": "NAS",
    "nas_f1": "NAS-F1",
    "nas_d": "NAS-D",
    "nas_d_precision": "Precision NAS-D",
    "nas_d_recall": "Recall NAS-D",
    "nas_l": "NAS-L",
    "nas_l_precision": "Precision NAS-L",
    "nas_l_recall": "Recall NAS-L",
    "window_regularizer": "Window-Regularizer",
}


@helper
def pair_scratch(longest: int) -> Any:
    """Working memory for pairs of up to `longest` chunks a side, as `score_matches` describes it."""
    return (
        np.empty((2, longest), dtype=np.int64),  # starts
        np.empty((2, longest), dtype=np.int64),  # ends
        np.empty((2, longest), dtype=np.int64),  # matches
        np.empty((2, longest), dtype=np.int64),  # floor_path
        np.empty((1, 3 * longest), dtype=np.int64),  # came_from
        np.empty((2, longest), dtype=np.float64),  # values
        np.empty((2, longest), dtype=np.float64),  # tops
        np.empty((2, longest), dtype=np.float64),  # parts
        np.empty((4, longest), dtype=np.float64),  # costs
    )


@helper
def score_pair(
    similarity: Similarities,
    transposed: bool,
    gas: float,
    params: Floats,
    scratch: Any,
    column_tops: Similarities,
    out: Floats,
) -> int:
    """Scores one matrix; returns OK, NOT_FINITE or OVERFLOW.

    similarity: C-contiguous (n_ref, n_gen), or (n_gen, n_ref) if `transposed`. scratch: see `pair_scratch`.
    column_tops: (2, >= columns), the type of `similarity`, scratch. out: (15,) float64, written.
    """
    rows, columns = similarity.shape
    n_ref = columns if transposed else rows
    n_gen = rows if transposed else columns
    by_row = PRECISION if transposed else RECALL
    starts, ends, matches, floor_path, came_from, values, tops, parts, costs = scratch
    fill_windows(n_ref, n_gen, starts, ends)
    for j in range(columns):
        column_tops[0, j] = -np.inf
    match_rows(similarity, 0, rows, by_row, starts, ends, params, tops, matches, values, column_tops)
    if not keep_column_tops(column_tops, columns, 1 - by_row, tops):
        return NOT_FINITE
    match_columns(similarity, 0, columns, 1 - by_row, starts, ends, params, tops, matches, values, parts)
    score_matches(
        n_ref, n_gen, starts, ends, matches, values, gas, params, parts, costs, floor_path, came_from, out
    )
    return status_of(out)


@helper
def status_of(out: Floats) -> int:
    """OVERFLOW if one of the scores is not finite, else OK."""
    total = 0.0
    for k in range(SCORE_COUNT):
        total += out[k] - out[k]
    return OK if total == 0.0 else OVERFLOW


def _score(similarity: Similarities, transposed: bool, gas: float, params: Floats, out: Floats) -> int:
    rows, columns = similarity.shape
    scratch = pair_scratch(max(rows, columns))
    column_tops = np.empty((2, columns), dtype=similarity.dtype)
    return score_pair(similarity, transposed, gas, params, scratch, column_tops, out)


_SCORE: Final = by_element(
    _score,
    lambda element: (
        array(element, 2, readonly=True),
        types.boolean,
        types.float64,
        array(types.float64, 1),
        array(types.float64, 1),
    ),
)


def score_similarity(similarity: npt.ArrayLike, gas: float, params: Params = DEFAULT_PARAMS) -> Scores:
    """Scores one pair from its similarity matrix.

    similarity: (n_ref, n_gen) cosines of reference and generated chunks, float32 or float64. Row order and
        column order are read in place; other strides and other types are copied.
    gas: cosine of the two whole-text embeddings.
    Raises ValueError that names the argument: not two axes, an empty axis, NaN or infinity, gas outside
        [-1, 1] by more than rounding.
    """
    if type(params) is not Params:
        checked_params(params)
    if type(gas) is not float or not -1.0 <= gas <= 1.0:
        gas = checked_gas(gas)
    matrix, transposed = as_matrix(similarity, "similarity")
    out = np.empty(SCORE_COUNT)
    status = score_into(matrix, transposed, gas, params.packed, out)
    if status != OK:
        raise not_finite("similarity") if status == NOT_FINITE else overflowing("similarity")
    return Scores._make(out.tolist())


def score_into(matrix: npt.NDArray[Any], transposed: bool, gas: float, packed: Floats, out: Floats) -> int:
    """Scores a matrix as `as_matrix` returns it; `out` is (15,) float64, the status is returned."""
    if matrix.size >= LARGE:
        if not score_large(matrix, transposed, gas, packed, out):
            return NOT_FINITE
        return OK if np.isfinite(out).all() else OVERFLOW
    kernel = _SCORE[matrix.dtype.char]
    status: int = (kernel.call or kernel.load())(matrix, transposed, gas, packed, out)
    return status


def as_matrix(given: Any, name: str) -> tuple[npt.NDArray[Any], bool]:
    """A C-contiguous float32 or float64 matrix and whether it is the transpose of the one given."""
    if (
        type(given) is np.ndarray
        and (given.dtype is FLOAT64 or given.dtype is FLOAT32)
        and given.ndim == 2
        and given.size
    ):
        matrix = given
    else:
        matrix = as_float_array(given, name, 2)
    flags = matrix.flags
    if flags.c_contiguous and flags.aligned:
        return matrix, False
    if flags.f_contiguous and flags.aligned:
        return matrix.T, True
    return np.ascontiguousarray(np.require(matrix, requirements="A")), False
