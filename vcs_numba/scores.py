"""`Scores` and `score_similarity`: the similarity matrix of a pair in, sixteen numbers out."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import (
    FLOAT32,
    FLOAT64,
    NO_COSINES,
    NOT_FINITE,
    OK,
    as_float_array,
    checked_gas,
    matrix_error,
)
from vcs_numba.jit.kernel import array, by_element, helper, types
from vcs_numba.kernels.combine import SCORE_COUNT, score_matches
from vcs_numba.kernels.large import score_large
from vcs_numba.kernels.line import Scratch, new_scratch
from vcs_numba.kernels.matching import (
    Floats,
    Sides,
    Similarities,
    are_cosines,
    keep_column_tops,
    match_columns,
    match_rows,
    new_sides,
)
from vcs_numba.kernels.windows import PRECISION, RECALL, fill_windows
from vcs_numba.params import DEFAULT_PARAMS, Params, checked_params

#: A matrix with this many values is scored by all cores.
LARGE: Final = 1 << 18


class Scores(NamedTuple):
    """The scores of one pair (docs/reference/vcs.md, section 12).

    Larger is better, except for the regulariser.

    Attributes
    ----------
    vcs
        The Video Comprehension Score, in [0, 1].
    gas
        Global alignment: the cosine of the whole texts.
    las, las_precision, las_recall
        Local alignment: the mean similarity of the chunks with their matches.
    sas
        GAS scaled by LAS.
    nas, nas_f1
        Narrative alignment, with and without the regulariser.
    nas_d, nas_d_precision, nas_d_recall
        Narrative alignment by the distance of matches from their windows.
    nas_l, nas_l_precision, nas_l_recall
        Narrative alignment by the length of the line through the matches.
    window_regularizer
        The part of NAS that a narrative in random order would reach.
    margin
        SAS + NAS - 1, in [-1, 1]: VCS before it is cut off at 0 and scaled. It orders pairs whose
        VCS is 0.
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
    margin: float

    def to_dict(self) -> dict[str, float]:
        """Return the scores by name, in the order of the fields."""
        return self._asdict()

    def to_reference_dict(self) -> dict[str, float]:
        """Return the scores of the reference package 1.0.0, under its names, without the margin."""
        return {reference: getattr(self, name) for name, reference in REFERENCE_NAMES.items()}


#: The name of a score here -> its name in the reference package, which has no margin.
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


class Memory(NamedTuple):
    """Working memory for a pair of up to L chunks a side."""

    sides: Sides
    scratch: Scratch
    column_tops: Similarities  # (2, L)


@helper
def new_memory(longest: int, column_tops: Similarities) -> Memory:
    """Allocate working memory, except for `column_tops`, which have the type of the matrix."""
    return Memory(new_sides(longest), new_scratch(longest), column_tops)


@helper
def score_pair(
    similarity: Similarities,
    transposed: bool,
    gas: float,
    params: Floats,
    memory: Memory,
    out: Floats,
) -> int:
    """Write the scores of a matrix from `as_matrix` to `out` (16,), and return its status."""
    sides, scratch, column_tops = memory
    rows, columns = similarity.shape
    n_ref = columns if transposed else rows
    n_gen = rows if transposed else columns
    by_row = PRECISION if transposed else RECALL
    fill_windows(n_ref, n_gen, sides.starts, sides.ends)
    for j in range(columns):
        column_tops[0, j] = -np.inf
    match_rows(similarity, 0, rows, by_row, sides, params, column_tops)
    if not keep_column_tops(column_tops, columns, 1 - by_row, sides.tops):
        return NOT_FINITE
    match_columns(similarity, 0, columns, 1 - by_row, sides, params, scratch.parts)
    if not are_cosines(n_ref, n_gen, sides):
        return NO_COSINES
    score_matches(n_ref, n_gen, sides, gas, params, scratch, out)
    return OK


def _score(
    similarity: Similarities, transposed: bool, gas: float, params: Floats, out: Floats
) -> int:
    rows, columns = similarity.shape
    column_tops = np.empty((2, columns), dtype=similarity.dtype)
    memory = new_memory(max(rows, columns), column_tops)
    return score_pair(similarity, transposed, gas, params, memory, out)


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


def score_similarity(
    similarity: npt.ArrayLike, gas: float, params: Params = DEFAULT_PARAMS
) -> Scores:
    """Score one pair from its similarity matrix (docs/reference/vcs.md).

    Parameters
    ----------
    similarity
        Cosines (n_ref, n_gen) of reference and generated chunks, float32 or float64. Row order and
        column order are read in place; other strides and other types are copied.
    gas
        Cosine of the embeddings of the whole texts.
    params
        Parameters of the metric.

    Returns
    -------
    Scores
        The scores of the pair.

    Raises
    ------
    ValueError
        Not two axes, an empty axis, NaN, infinity, or a best match or GAS outside [-1, 1] by more
        than rounding. The message names the argument.
    """
    if type(params) is not Params:
        checked_params(params)
    if type(gas) is not float or not -1.0 <= gas <= 1.0:
        gas = checked_gas(gas)
    matrix, transposed = as_matrix(similarity, "similarity")
    out = np.empty(SCORE_COUNT)
    status = score_into(matrix, transposed, gas, params.packed, out)
    if status != OK:
        raise matrix_error(status, "similarity")
    return Scores._make(out.tolist())


def score_into(
    matrix: npt.NDArray[Any], transposed: bool, gas: float, packed: Floats, out: Floats
) -> int:
    """Score a matrix from `as_matrix`, write the scores to `out` (16,) and return the status."""
    if matrix.size >= LARGE:
        return score_large(matrix, transposed, gas, packed, out)
    status: int = _SCORE[matrix.dtype.char].call(matrix, transposed, gas, packed, out)
    return status


def as_matrix(values: Any, name: str) -> tuple[npt.NDArray[Any], bool]:
    """Return a C-contiguous float32 or float64 matrix, and whether it is the transpose of `values`.

    Raises ValueError that starts with `name`.
    """
    if (
        type(values) is np.ndarray
        and (values.dtype is FLOAT64 or values.dtype is FLOAT32)
        and values.ndim == 2
        and values.size
    ):
        matrix = values
    else:
        matrix = as_float_array(values, name, 2)
    flags = matrix.flags
    if flags.c_contiguous and flags.aligned:
        return matrix, False
    if flags.f_contiguous and flags.aligned:
        return matrix.T, True
    return np.ascontiguousarray(np.require(matrix, requirements="A")), False
