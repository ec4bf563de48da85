"""Cosines of texts, from their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from vcs_numba.embeddings import cosine_similarity
from vcs_runtime.inference.vector_cache import Vector


def cosines(
    reference: Sequence[str], generated: Sequence[str], vectors: Mapping[str, Vector]
) -> npt.NDArray[np.float64]:
    """Compute the similarity matrix (len(reference), len(generated)) (docs/reference/vcs.md, section 1).

    It is clipped, because vectors rounded to float32 may be slightly longer than 1, and no score may exceed
    1.
    """
    left, right = (np.array([vectors[text] for text in texts]) for texts in (reference, generated))
    similarity = cosine_similarity(left, right)
    return np.clip(similarity, -1.0, 1.0, out=similarity)  # in place: that of a long text is large
