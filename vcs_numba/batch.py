"""`score_batch`: many pairs of different sizes in one call, on all cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import FLOAT32, FLOAT64, checked_gas, not_finite, overflowing
from vcs_numba.combine import SCORE_COUNT
from vcs_numba.jit import array, by_element, types
from vcs_numba.matching import Floats, Similarities
from vcs_numba.params import DEFAULT_PARAMS, Params, checked_params
from vcs_numba.scores import NOT_FINITE, OK, Scores, as_matrix, pair_scratch, score_into, score_pair
from vcs_numba.threads import for_each, thread_count
from vcs_numba.windows import Ints

#: One record per pair: the fields of `Scores`, float64 each.
SCORE_DTYPE: Final = np.dtype([(name, np.float64) for name in Scores._fields])

#: A matrix with this many values is scored where it lies; smaller ones are gathered into one array first.
_LARGE: Final = 1 << 17
#: At most this many values are gathered at a time: what a batch needs beside its input (32 MiB of float64).
_GATHERED: Final = 1 << 22
#: A share of work below this many values is not worth another thread.
_SHARE: Final = 1 << 14


def _score_gathered(
    values: Similarities,
    shapes: Ints,
    offsets: Ints,
    first: int,
    stop: int,
    gas: Floats,
    params: Floats,
    out: Floats,
    statuses: Ints,
) -> None:
    """Scores the pairs first..stop of matrices that lie one behind the other in `values`."""
    longest = 1
    for k in range(first, stop):
        longest = max(longest, shapes[k, 0], shapes[k, 1])
    scratch = pair_scratch(longest)
    column_tops = np.empty((2, longest), dtype=values.dtype)
    for k in range(first, stop):
        rows = shapes[k, 0]
        columns = shapes[k, 1]
        similarity = values[offsets[k] : offsets[k] + rows * columns].reshape((rows, columns))
        statuses[k] = score_pair(similarity, False, gas[k], params, ints, floats, column_tops, out[k])


_SCORE_GATHERED: Final = by_element(
    _score_gathered,
    lambda element: (
        array(element, 1),
        array(types.int64, 2),
        array(types.int64, 1),
        types.int64,
        types.int64,
        array(types.float64, 1),
        array(types.float64, 1),
        array(types.float64, 2),
        array(types.int64, 1),
    ),
)


def score_batch(
    similarities: Sequence[npt.ArrayLike] | Iterable[npt.ArrayLike],
    gas: npt.ArrayLike,
    params: Params = DEFAULT_PARAMS,
) -> npt.NDArray[np.void]:
    """Scores many pairs; each record equals `score_similarity` of its pair bit for bit.

    similarities: n matrices (n_ref, n_gen), each of its own size, or one array (n, n_ref, n_gen); float32 or
        float64.
    gas: n cosines of the whole-text embeddings.
    Returns (n,) records of SCORE_DTYPE in the order given: `result["vcs"]` is an (n,) float64 array.
    Raises ValueError that names the argument and the index (`similarities[17]: ...`), for the first bad pair.
    """
    packed = checked_params(params).packed
    matrices: list[Any] = list(similarities)
    cosines = _checked_gas(gas, len(matrices))
    shapes = _shapes(matrices)
    out = np.empty((len(matrices), SCORE_COUNT))
    statuses = np.empty(len(matrices), dtype=np.int64)
    sizes = shapes[:, 0] * shapes[:, 1]
    small = np.flatnonzero(sizes < _LARGE)
    first = 0
    ends = np.cumsum(sizes[small])
    while first < len(small):
        done = ends[first - 1] if first else 0
        stop = max(int(np.searchsorted(ends, done + _GATHERED, side="right")), first + 1)
        _score_group(matrices, shapes, small[first:stop], cosines, packed, out, statuses)
        first = stop
    for k in np.flatnonzero(sizes >= _LARGE).tolist():
        matrix, transposed = as_matrix(matrices[k], f"similarities[{k}]")
        statuses[k] = score_into(matrix, transposed, float(cosines[k]), packed, out[k])
    bad = np.flatnonzero(statuses != OK)
    if bad.size:
        name = f"similarities[{bad[0]}]"
        raise not_finite(name) if statuses[bad[0]] == NOT_FINITE else overflowing(name)
    return out.view(SCORE_DTYPE).reshape(len(matrices))


def _checked_gas(gas: Any, count: int) -> npt.NDArray[np.float64]:
    """`gas` as `count` float64 values, each a cosine."""
    try:
        given = np.asarray(gas)
    except Exception as error:
        raise ValueError(f"gas: not an array of numbers: {error}") from error
    if given.shape != (count,):
        raise ValueError(f"gas: expected {count} values, one for each matrix, not shape {given.shape}")
    if given.dtype.kind not in "fiu" and count:
        raise ValueError(f"gas: expected numbers, not {given.dtype}")
    cosines = np.ascontiguousarray(given, dtype=np.float64)
    for k in np.flatnonzero(~(np.abs(cosines) <= 1.0)).tolist():
        checked_gas(float(cosines[k]), f"gas[{k}]")
    return cosines


def _shapes(matrices: list[Any]) -> Ints:
    """(n, 2) int64 shapes. Replaces every item of `matrices` that is not a float32 or float64 array of two axes."""
    # Few Python operations for each pair: at 20 x 20 the kernel itself takes about a microsecond.
    plain = all(
        type(matrix) is np.ndarray
        and (matrix.dtype is FLOAT64 or matrix.dtype is FLOAT32)
        and matrix.ndim == 2
        for matrix in matrices
    )
    if not plain:
        for k, matrix in enumerate(matrices):
            matrices[k] = np.asarray(_readable(matrix, k))
    flat = chain.from_iterable([matrix.shape for matrix in matrices])
    shapes = np.fromiter(flat, dtype=np.int64, count=2 * len(matrices)).reshape(-1, 2)
    empty = np.flatnonzero((shapes == 0).any(axis=1))
    if empty.size:
        as_matrix(matrices[empty[0]], f"similarities[{empty[0]}]")
    return shapes


def _readable(matrix: Any, index: int) -> npt.NDArray[Any]:
    kept, transposed = as_matrix(matrix, f"similarities[{index}]")
    return kept.T if transposed else kept


def _score_group(
    matrices: list[Any],
    shapes: Ints,
    members: npt.NDArray[np.intp],
    gas: Floats,
    params: Floats,
    out: Floats,
    statuses: Ints,
) -> None:
    """Gathers the matrices named by `members` into one array and scores them in shares of equal size."""
    whole = len(members) == len(matrices)
    chosen = matrices if whole else [matrices[k] for k in members.tolist()]
    # Flattens each in C order; float32 beside float64 becomes float64, which changes no value.
    values = np.concatenate(chosen, axis=None)
    group_shapes = shapes if whole else shapes[members]
    group_gas = gas if whole else gas[members]
    group_out = out if whole else np.empty((len(members), SCORE_COUNT))
    group_statuses = statuses if whole else np.empty(len(members), dtype=np.int64)
    ends = np.cumsum(group_shapes[:, 0] * group_shapes[:, 1])
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))
    shares = max(min(2 * thread_count(), int(ends[-1]) // _SHARE), 1)
    cuts = [0, *np.searchsorted(ends, ends[-1] * np.arange(1, shares) // shares).tolist(), len(members)]
    kernel = _SCORE_GATHERED[values.dtype.char]
    call = kernel.call or kernel.load()

    def score_share(k: int) -> None:
        call(
            values,
            group_shapes,
            offsets,
            cuts[k],
            cuts[k + 1],
            group_gas,
            params,
            group_out,
            group_statuses,
        )

    for_each(shares, score_share)
    if not whole:
        out[members] = group_out
        statuses[members] = group_statuses
