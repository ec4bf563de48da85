"""Similarity matrices made from a number, and flat intermediate results, for the core's tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba import Alignment, Orientation, Params

STYLES = ("uniform", "hundredths", "twentieths", "high", "diagonal", "shuffled", "negative", "flat")
LCTS = (0.0, 0.1, 0.5, 1.0, 2.0)
REASONS = ("max_similarity", "in_mapping_window", "closest_to_mapping_window")
METHODS = ("none", "standard", "lct_capped")


class Case(NamedTuple):
    """One drawn pair; `matrix(case)` and `params(case)` are what it stands for."""

    seed: int
    n_ref: int
    n_gen: int
    style: int
    lct: float
    context_cutoff: float
    context_window: float
    gas: float


def noise(seed: int, count: int) -> npt.NDArray[np.float64]:
    """`count` numbers in [0, 1) by SplitMix64, the same on every platform."""
    z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 20)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**53


def matrix(case: Case) -> npt.NDArray[np.float64]:
    """(n_ref, n_gen) similarities in [-1, 1], from operations that round alike everywhere."""
    shape = (case.n_ref, case.n_gen)
    drawn = noise(case.seed, case.n_ref * case.n_gen).reshape(shape)
    style = STYLES[case.style]
    if style == "uniform":
        return 2.0 * drawn - 1.0
    if style == "hundredths":
        return np.floor(drawn * 201.0 - 100.0) / 100.0
    if style == "twentieths":
        return np.floor(drawn * 11.0 + 10.0) / 20.0
    if style == "high":
        return 0.3 + 0.7 * drawn
    if style == "negative":
        return -np.floor(drawn * 100.0 + 1.0) / 100.0
    if style == "flat":
        return np.full(shape, float(np.floor(drawn[0, 0] * 21.0 - 10.0) / 10.0))
    # A story told in order, or out of order, with noise.
    row = np.arange(case.n_ref)[:, np.newaxis] / case.n_ref
    column = np.arange(case.n_gen)[np.newaxis, :] / case.n_gen
    if style == "shuffled":
        column = column[:, np.argsort(noise(case.seed + 1, case.n_gen), kind="stable")]
    return np.maximum(0.9 - np.abs(row - column), 0.1) + 0.1 * drawn


def params(case: Case, **others: object) -> Params:
    given = {
        "lct": case.lct,
        "context_cutoff": case.context_cutoff,
        "context_window": case.context_window,
        "small_text": "reference",
    }
    return Params(**(given | others))  # type: ignore[arg-type]


def drawn_case(seed: int) -> Case:
    """Case number `seed` of an endless list: all styles, tolerances and sizes."""
    a, b, c, d, e, f, g, h = noise(seed + 7_000_000, 8).tolist()
    kind = seed % 8
    if kind == 0:
        n_ref, n_gen = int(1 + a * 3), int(1 + b * 3)
    elif kind == 1:
        n_ref, n_gen = int(1 + a * 2), int(10 + b * 31)
    elif kind == 2:
        n_ref, n_gen = int(10 + a * 31), int(1 + b * 2)
    elif kind == 3:
        n_ref = int(10 + a * 30)
        n_gen = max(n_ref + int(b * 5) - 2, 1)
    else:
        n_ref, n_gen = int(1 + a * 24), int(1 + b * 24)
    default_context = c < 0.6
    return Case(
        seed=seed,
        n_ref=n_ref,
        n_gen=n_gen,
        style=seed // 8 % len(STYLES),
        lct=LCTS[int(d * len(LCTS))],
        context_cutoff=0.6 if default_context else round(e, 2),
        context_window=4.0 if default_context else round(0.5 + 9.0 * f, 2),
        gas=round(2.0 * g - 1.0, 3) if h < 0.3 else round(0.5 + 0.5 * g, 3),
    )


def flat_alignment(alignment: Alignment) -> dict[str, npt.NDArray[np.float64]]:
    """Every intermediate result, by the name that `support.core_oracle` gives it."""
    flat: dict[str, object] = {
        "window_area": alignment.window_area,
        "grid_area": alignment.grid_area,
        "min_coverage": alignment.min_coverage,
        "regularizer": alignment.regularizer,
        "las": alignment.las,
        "nas_d": alignment.nas_d,
        "nas_l": alignment.nas_l,
        "nas_f1": alignment.nas_f1,
        "nas": alignment.nas,
    }
    for name, side in (("precision", alignment.precision), ("recall", alignment.recall)):
        flat |= {f"{name}.{key}": value for key, value in _flat_orientation(side).items()}
    return {key: np.asarray(value, dtype=np.float64) for key, value in flat.items()}


def _flat_orientation(side: Orientation) -> dict[str, object]:
    counts = np.diff(side.candidates.offsets)
    several = np.repeat(counts > 1, counts)  # the reference lists a candidate only beside others
    chunk = np.repeat(np.arange(side.x), counts)
    index = side.candidates.index
    return {
        "window_start": side.window_start,
        "window_end": side.window_end,
        "match": side.match,
        "similarity": side.similarity,
        "max_index": side.max_index,
        "max_similarity": side.max_similarity,
        "context_window": side.context_window,
        "context_applied": side.context_window > 0.0,
        "context_threshold": side.context_threshold,
        "reason": [REASONS.index(reason) for reason in side.reason],
        "candidate_chunk": chunk[several],
        "candidate_index": index[several],
        "candidate_similarity": side.candidates.similarity[several],
        "candidate_distance": side.candidates.distance[several],
        "candidate_in_window": side.candidates.distance[several] == 0,
        "candidate_selected": (index == side.match[chunk])[several],
        "penalty": side.penalty,
        "in_window": side.in_window,
        "in_lct_zone": side.in_lct_zone,
        "tolerance_height": side.tolerance_height,
        "total_penalty": side.total_penalty,
        "max_penalty": side.max_penalty,
        "segment_dy": side.segment_dy,
        "segment_length": side.segment_length,
        "segment_method": [METHODS.index(method) for method in side.segment_method],
        "segment_limit": np.full(max(side.x - 1, 0), side.segment_limit),
        "segment_limit_lct": np.full(max(side.x - 1, 0), side.segment_limit_lct),
        "floor_path": side.floor_path,
        "ceiling_path": side.ceiling_path,
        "actual_path": side.actual_path,
        "floor_length": side.floor_length,
        "ceiling_length": side.ceiling_length,
        "actual_length": side.actual_length,
        "las": side.las,
        "nas_d": side.nas_d,
        "nas_l": side.nas_l,
    }
