"""`score_embeddings`: from embeddings to similarities (spec/vcs.md, sections 1 and 2), then to scores."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import as_float_array
from vcs_numba.jit import Kernel, array, types
from vcs_numba.params import DEFAULT_PARAMS, Params, checked_params
from vcs_numba.scores import Scores, score_similarity
from vcs_numba.threads import for_each

#: Rows of the similarity matrix that one piece of work computes.
_ROWS: Final = 64


def _dot_products(
    left: npt.NDArray[np.float32],
    right: npt.NDArray[np.float32],
    first: int,
    stop: int,
    out: npt.NDArray[np.float64],
) -> None:
    """Writes `left[i] . right[j]` to `out[i, j]` for the rows first..stop.

    Products and sums in float64, in one fixed order for each pair: unlike a BLAS, whose blocks depend on the
    shapes and on the threads, so that a pair's similarity would depend on the other chunks.
    """
    lanes = 16
    sums = np.empty(lanes, dtype=np.float64)
    size = left.shape[1]
    whole = size - size % lanes
    for i in range(first, stop):
        a = left[i]
        for j in range(right.shape[0]):
            b = right[j]
            sums[:] = 0.0
            for block in range(0, whole, lanes):
                for k in range(lanes):
                    sums[k] += np.float64(a[block + k]) * np.float64(b[block + k])
            total = 0.0
            for k in range(whole, size):
                total += np.float64(a[k]) * np.float64(b[k])
            for k in range(lanes):
                total += sums[k]
            out[i, j] = total


_DOT_PRODUCTS: Final = Kernel(
    _dot_products,
    array(types.float32, 2, readonly=True),
    array(types.float32, 2, readonly=True),
    types.int64,
    types.int64,
    array(types.float64, 2),
)


def unit_rows(rows: Any, name: str) -> npt.NDArray[np.float32]:
    """(n, d) rows scaled to length 1 and rounded to float32. ValueError for a row of zeros, NaN or
    infinity.
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
    """(n, m) float64 dot products of unit rows (n, d) and (m, d)."""
    out = np.empty((len(left), len(right)))
    call = _DOT_PRODUCTS.call or _DOT_PRODUCTS.load()
    pieces = -(-len(left) // _ROWS)
    for_each(pieces, lambda k: call(left, right, k * _ROWS, min((k + 1) * _ROWS, len(left)), out))
    return out


def score_embeddings(
    ref_chunks: npt.ArrayLike,
    gen_chunks: npt.ArrayLike,
    ref_text: npt.ArrayLike,
    gen_text: npt.ArrayLike,
    params: Params = DEFAULT_PARAMS,
) -> Scores:
    """Scores one pair from the embeddings of its chunks and of its two whole texts.

    ref_chunks (n_ref, d), gen_chunks (n_gen, d), ref_text (d,), gen_text (d,): any length; every vector is
    normalised here.
    Raises ValueError that names the argument: wrong axes, different d, NaN, infinity, a zero vector.
    """
    checked_params(params)
    ref_rows = unit_rows(ref_chunks, "ref_chunks")
    gen_rows = unit_rows(gen_chunks, "gen_chunks")
    ref_whole = unit_rows(as_float_array(ref_text, "ref_text", 1)[np.newaxis], "ref_text")
    gen_whole = unit_rows(as_float_array(gen_text, "gen_text", 1)[np.newaxis], "gen_text")
    size = ref_rows.shape[1]
    for name, rows in (("gen_chunks", gen_rows), ("ref_text", ref_whole), ("gen_text", gen_whole)):
        if rows.shape[1] != size:
            raise ValueError(f"{name}: vectors of {rows.shape[1]} components, ref_chunks of {size}")
    gas = float(cosine_similarity(ref_whole, gen_whole)[0, 0])
    return score_similarity(cosine_similarity(ref_rows, gen_rows), gas, params)
