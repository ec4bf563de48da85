"""`score_batch`: many pairs of different sizes in one call, on all cores."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import FLOAT32, FLOAT64, OK, checked_gas, matrix_error
from vcs_numba.embeddings import _DOT_PRODUCTS
from vcs_numba.jit.kernel import array, by_element, load_in_background, types
from vcs_numba.jit.threads import for_each, thread_count
from vcs_numba.kernels.combine import SCORE_COUNT
from vcs_numba.kernels.matching import Floats, Similarities
from vcs_numba.kernels.windows import Ints
from vcs_numba.params import DEFAULT_PARAMS, Params, checked_params
from vcs_numba.scores import Scores, as_matrix, new_memory, score_into, score_pair

#: One record for each pair: the fields of `Scores`, float64 each.
SCORE_DTYPE: Final = np.dtype([(name, np.float64) for name in Scores._fields])

#: Matrices with at least this many values are scored in place; smaller ones are first gathered in
#: one array.
_LARGE: Final = 1 << 16
#: About how many values a thread gathers at a time at most: they stay in the core's cache.
_GATHERED: Final = 1 << 17
#: Least number of values for which another thread is worth while.
_LEAST_SHARE: Final = 1 << 13

_LOCAL: Final = threading.local()
_DTYPE: Final = attrgetter("dtype")
_SHAPE: Final = attrgetter("shape")
_PLAIN: Final = frozenset((id(FLOAT32), id(FLOAT64)))


def _score_gathered(
    values: Similarities, shapes: Ints, gas: Floats, params: Floats, out: Floats, statuses: Ints
) -> None:
    """Score the pairs whose matrices lie one after the other in `values`."""
    longest = 1
    for k in range(len(shapes)):
        longest = max(longest, shapes[k, 0], shapes[k, 1])
    memory = new_memory(longest, np.empty((2, longest), dtype=values.dtype))
    offset = 0
    for k in range(len(shapes)):
        rows = shapes[k, 0]
        columns = shapes[k, 1]
        similarity = values[offset : offset + rows * columns].reshape((rows, columns))
        offset += rows * columns
        statuses[k] = score_pair(similarity, False, gas[k], params, memory, out[k])


_SCORE_GATHERED: Final = by_element(
    _score_gathered,
    lambda element: (
        array(element, 1),
        array(types.int64, 2),
        array(types.float64, 1, readonly=True),
        array(types.float64, 1),
        array(types.float64, 2),
        array(types.int64, 1),
    ),
)


def score_batch(
    similarities: Iterable[npt.ArrayLike], gas: npt.ArrayLike, params: Params = DEFAULT_PARAMS
) -> npt.NDArray[np.void]:
    """Score many pairs on all cores; each record equals `score_similarity` of its pair bit for bit.

    Parameters
    ----------
    similarities
        n matrices (n_ref, n_gen), float32 or float64, each of its own size; or one array (n, n_ref,
        n_gen).
    gas
        n cosines of the embeddings of the whole texts.
    params
        Parameters of the metric.

    Returns
    -------
    ndarray
        n records of SCORE_DTYPE in the order of the matrices; `result["vcs"]` is float64 (n,).

    Raises
    ------
    ValueError
        A pair cannot be scored. The message names argument and index of the first one:
        "similarities[17]: holds NaN or infinity".
    """
    packed = checked_params(params).packed
    try:
        matrices: list[Any] = list(similarities)
    except TypeError as error:
        raise ValueError(
            f"similarities must be matrices, not {type(similarities).__name__}"
        ) from error
    cosines = _checked_gas(gas, len(matrices))
    shapes = _shapes(matrices)
    out = np.empty((len(matrices), SCORE_COUNT))
    statuses = np.empty(len(matrices), dtype=np.int64)
    sizes = shapes[:, 0] * shapes[:, 1]
    shares = _shares(sizes)
    # float32 beside float64 becomes float64, which changes no value.
    # `map` takes half the time of a loop, which counts beside a kernel of a microsecond.
    are_float32 = map(FLOAT32.__eq__, map(_DTYPE, matrices))
    dtype = FLOAT32 if all(are_float32) else FLOAT64

    def score_share(number: int) -> None:
        first, stop = shares[number]
        matrix, transposed = as_matrix(matrices[first], f"similarities[{first}]")
        if matrix.size >= _LARGE:
            statuses[first] = score_into(
                matrix, transposed, float(cosines[first]), packed, out[first]
            )
            return
        share = slice(first, stop)
        values = _gathering_space(dtype, int(sizes[share].sum()))
        np.concatenate(matrices[share], axis=None, out=values)  # each flattened in C order
        _SCORE_GATHERED[dtype.char].call(
            values, shapes[share], cosines[share], packed, out[share], statuses[share]
        )

    for_each(len(shares), score_share)
    bad = np.flatnonzero(statuses != OK)
    if bad.size:
        raise matrix_error(statuses[bad[0]], f"similarities[{bad[0]}]")
    return out.view(SCORE_DTYPE).reshape(len(matrices))


def _gathering_space(dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    """Return space for `size` values, which a thread reuses from call to call.

    The page faults of fresh memory would cost more than the scoring.
    """
    space: npt.NDArray[Any] | None = getattr(_LOCAL, dtype.char, None)
    if space is None or space.size < size:
        space = np.empty(max(size, _GATHERED), dtype)
        setattr(_LOCAL, dtype.char, space)
    return space[:size]


def _checked_gas(gas: Any, count: int) -> npt.NDArray[np.float64]:
    """Return `gas` as `count` float64 values, each a cosine."""
    try:
        values = np.asarray(gas)
    except Exception as error:
        raise ValueError(f"gas must be an array of numbers: {error}") from error
    if values.shape != (count,):
        raise ValueError(
            f"gas must have {count} values, one for each matrix, not the shape {values.shape}"
        )
    if values.dtype.kind not in "fiu" and count:
        raise ValueError(f"gas must be numbers, not {values.dtype}")
    cosines = np.ascontiguousarray(values, dtype=np.float64)
    for k in np.flatnonzero(~(np.abs(cosines) <= 1.0)).tolist():
        checked_gas(float(cosines[k]), f"gas[{k}]")
    return cosines


def _shapes(matrices: list[Any]) -> Ints:
    """Return the shapes, int64 (n, 2), and replace all but float arrays of two axes."""
    if not _are_plain(matrices):
        for k, matrix in enumerate(matrices):
            matrices[k] = _readable(matrix, k)
    sizes = map(_SHAPE, matrices)
    flat = chain.from_iterable(sizes)
    shapes = np.fromiter(flat, dtype=np.int64, count=2 * len(matrices)).reshape(-1, 2)
    empty = np.flatnonzero((shapes == 0).any(axis=1))
    if empty.size:
        as_matrix(matrices[empty[0]], f"similarities[{empty[0]}]")
    return shapes


def _are_plain(matrices: list[Any]) -> bool:
    """Return whether all are native float arrays of two axes."""
    # `map` and the identity of a dtype, not its hash, because each pair counts: the kernel takes
    # about a microsecond at 20 x 20.
    if set(map(type, matrices)) != {np.ndarray}:
        return False
    if not set(map(id, map(_DTYPE, matrices))) <= _PLAIN:
        return False
    return set(map(len, map(_SHAPE, matrices))) == {2}


def _readable(matrix: Any, index: int) -> npt.NDArray[Any]:
    """Return a matrix as a float array of two axes; raises ValueError with its index."""
    readable, transposed = as_matrix(matrix, f"similarities[{index}]")
    return readable.T if transposed else readable


def _shares(sizes: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Divide the pairs into runs (first, stop) of about _GATHERED values.

    A large matrix is a run alone.
    """
    ends = np.cumsum(sizes)
    total = int(sizes.sum())
    large = np.flatnonzero(sizes >= _LARGE)
    share = max(min(total // (4 * thread_count()), _GATHERED), _LEAST_SHARE)
    regular = np.searchsorted(ends, np.arange(0, total, share), side="right")
    cuts = np.unique(np.concatenate((regular, large, large + 1, [0, len(sizes)])))
    return list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))


def load_ahead() -> None:
    """Begin to import Numba and read the kernels of usual pairs, in another thread.

    A first score waits for that thread, if need be, and compiles what the cache does not hold.
    """
    load_in_background((_DOT_PRODUCTS, _SCORE_GATHERED["d"]))
