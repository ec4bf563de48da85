"""HM-CF of pairs, beside VCS (docs/reference/vcs.md, section 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcs_numba import HmCf, hm_cf
from vcs_runtime.inference.vector_cache import Vector
from vcs_runtime.scoring.cosines import cosines
from vcs_runtime.util.means import exact_means


def hm_cf_of(
    sentences: Sequence[Sequence[str]], coarse: Sequence[float], vectors: Mapping[str, Vector], aggregate: str
) -> HmCf:
    """Compute HM-CF of a generated text against one or several references."""
    *references, generated = sentences
    every = [
        hm_cf(cosines(reference, generated, vectors), whole)
        for reference, whole in zip(references, coarse, strict=True)
    ]
    if aggregate == "mean":
        return HmCf._make(exact_means(every))
    return max(every, key=lambda own: (own.hm_cf, *own))
