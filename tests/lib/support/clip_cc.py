"""CLIP-CC-Bench's HM-CF and its table once more, in NumPy; its code (2026-08-21) was only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[Any]


def hm_cf(
    reference: Vectors, generated: Vectors, whole_reference: Vectors, whole_generated: Vectors
) -> dict[str, float]:
    """HM-CF from unit vectors: of the sentences (n, d), and of the whole texts (d,)."""
    cosines = np.array([[float(np.dot(own, other)) for other in reference] for own in generated])
    precision, recall = float(np.mean(cosines.max(axis=1))), float(np.mean(cosines.max(axis=0)))
    coarse = float(np.dot(whole_reference, whole_generated))
    f1 = _harmonic(precision, recall)
    return {
        "coarse": coarse,
        "fine_precision": precision,
        "fine_recall": recall,
        "fine_f1": f1,
        "hm_cf": _harmonic(coarse, f1),
    }


def _harmonic(a: float, b: float) -> float:
    return 2 * (a * b) / (a + b) if a > 0 and b > 0 else 0.0


def borda(means: Mapping[str, Mapping[str, float]]) -> dict[str, int]:
    """Points of each system: by judge, one for every system with a lower mean."""
    systems = next(iter(means.values()))
    return {
        system: sum(own[other] < own[system] for own in means.values() for other in own)
        for system in systems
    }
