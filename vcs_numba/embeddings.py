"""`score_embeddings`: from embeddings to scores (docs/reference/vcs.md, sections 1 and 2)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import as_float_array
from vcs_numba.jit.kernel import Kernel, array, types
from vcs_numba.jit.threads import for_each
from vcs_numba.params import DEFAULT_PARAMS, Params, checked_params
from vcs_numba.scores import Scores, score_similarity

#: Rows of the similarity matrix in one piece of work, and columns taken at a time: few enough for
#: the data to stay in the core's cache.
_ROWS: Final = 64
#: Components taken at a time, and components added in one pass.
_COMPONENTS: Final = 32
_STEP: Final = 4


def _dot_products(
    left: npt.NDArray[np.float32],
    right: npt.NDArray[np.float32],
    first: int,
    stop: int,
    out: npt.NDArray[np.float64],
) -> None:
    """Write the dot product of `left[i]` and `right[j]` to `out[i, j]` for the rows first..stop.

    Each is summed in float64 from the first component to the last, then zeros. A BLAS divides its
    work by shapes and threads, so a similarity would depend on the other chunks and on the machine.
    """
    size, factors = right.shape[1], np.zeros(_COMPONENTS)
    for column in range(0, len(right), _ROWS):
        vectors = right[column : column + _ROWS]
        sums = np.zeros((stop - first, -(-len(vectors) // _STEP) * _STEP))
        for block in range(0, size, _COMPONENTS):
            count = min(_COMPONENTS, size - block)
            wide = np.zeros((_COMPONENTS, sums.shape[1]))
            for j in range(len(vectors)):
                for k in range(count):
                    wide[k, j] = vectors[j, block + k]
            for i in range(first, stop):
                for k in range(count):
                    factors[k] = left[i, block + k]
                for k in range(0, count, _STEP):
                    for j in range(sums.shape[1]):
                        total = sums[i - first, j]
                        for step in range(_STEP):
                            total += factors[k + step] * wide[k + step, j]
                        sums[i - first, j] = total
        out[first:stop, column : column + _ROWS] = sums[:, : len(vectors)]


_DOT_PRODUCTS: Final = Kernel(
    _dot_products,
    array(types.float32, 2, readonly=True),
    array(types.float32, 2, readonly=True),
    types.int64,
    types.int64,
    array(types.float64, 2),
)


def unit_rows(rows: Any, name: str) -> npt.NDArray[np.float32]:
    """Scale the rows of a matrix (n, d) to length 1 and round them to float32.

    Raises ValueError that starts with `name` for a row of zeros, NaN or infinity.
    """
    wide = np.asarray(as_float_array(rows, name, 2), dtype=np.float64)
    # Scaled by the largest component first, so that no square overflows or vanishes.
    largest = np.max(np.abs(wide), axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(largest))
    if bad.size:
        raise ValueError(f"{name}: holds NaN or infinity (row {bad[0]})")
    bad = np.flatnonzero(largest == 0.0)
    if bad.size:
        raise ValueError(f"{name}: a zero vector has no direction (row {bad[0]})")
    scaled = wide / largest
    lengths = np.sqrt(np.sum(scaled * scaled, axis=1, keepdims=True))
    return np.ascontiguousarray(scaled / lengths, dtype=np.float32)


def cosine_similarity(
    left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Return the cosines (n, m) of unit vectors.

    Each depends on its two vectors; rounding may exceed 1.
    """
    out = np.empty((len(left), len(right)))

    def piece(k: int) -> None:
        _DOT_PRODUCTS.call(left, right, k * _ROWS, min((k + 1) * _ROWS, len(left)), out)

    for_each(-(-len(left) // _ROWS), piece)
    return out


def score_embeddings(
    ref_chunks: npt.ArrayLike,
    gen_chunks: npt.ArrayLike,
    ref_text: npt.ArrayLike,
    gen_text: npt.ArrayLike,
    params: Params = DEFAULT_PARAMS,
) -> Scores:
    """Score one pair from the embeddings of its chunks and of its two whole texts.

    Vectors may have any length: each is scaled to length 1, in float32 (docs/reference/vcs.md,
    section 1).

    Parameters
    ----------
    ref_chunks
        (n_ref, d): the chunks of the reference, in order.
    gen_chunks
        (n_gen, d): the chunks of the generated text, in order.
    ref_text
        (d,): the whole reference.
    gen_text
        (d,): the whole generated text.
    params
        Parameters of the metric.

    Returns
    -------
    Scores
        The scores of the pair.

    Raises
    ------
    ValueError
        Wrong axes, different d, NaN, infinity or a zero vector. The message names the argument.
    """
    checked_params(params)
    ref_rows = unit_rows(ref_chunks, "ref_chunks")
    gen_rows = unit_rows(gen_chunks, "gen_chunks")
    ref_whole = unit_rows(as_float_array(ref_text, "ref_text", 1)[np.newaxis], "ref_text")
    gen_whole = unit_rows(as_float_array(gen_text, "gen_text", 1)[np.newaxis], "gen_text")
    size = ref_rows.shape[1]
    for name, rows in (("gen_chunks", gen_rows), ("ref_text", ref_whole), ("gen_text", gen_whole)):
        if rows.shape[1] != size:
            raise ValueError(
                f"{name}: vectors of {rows.shape[1]} components, ref_chunks has {size}"
            )
    gas = float(cosine_similarity(ref_whole, gen_whole)[0, 0])
    return score_similarity(cosine_similarity(ref_rows, gen_rows), gas, params)
