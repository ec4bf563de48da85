"""The reference package as an oracle for the core: any similarity matrix pushed through it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import vcs

from support.core_cases import METHODS, REASONS


def reference_result(
    similarity: npt.NDArray[np.float64],
    gas: float,
    *,
    lct: float = 0.0,
    context_cutoff: float = 0.6,
    context_window: float = 4.0,
    internals: bool = True,
) -> dict[str, Any]:
    """`compute_vcs_score` with all metrics, as if the chunks had this similarity matrix."""
    n_ref, n_gen = similarity.shape
    segments = {
        "reference": [f"r{i}" for i in range(n_ref)],
        "generated": [f"g{j}" for j in range(n_gen)],
    }
    rows = torch.tensor(similarity, dtype=torch.float64)
    identity = torch.eye(n_gen, dtype=torch.float64)

    def embed_chunks(chunks: list[str]) -> torch.Tensor:
        return rows if chunks[0].startswith("r") else identity

    def embed_texts(texts: list[str]) -> torch.Tensor:
        assert texts == ["reference", "generated"]
        return torch.tensor([[1.0, 0.0], [gas, math.sqrt(1.0 - gas * gas)]], dtype=torch.float64)

    with warnings.catch_warnings():
        # Its divisions by zero on two by two (section 9).
        warnings.simplefilter("ignore", RuntimeWarning)
        result: dict[str, Any] = vcs.compute_vcs_score(
            "reference",
            "generated",
            segmenter_fn=segments.__getitem__,
            embedding_fn_las=embed_chunks,
            embedding_fn_gas=embed_texts,
            chunk_size=1,
            context_cutoff_value=context_cutoff,
            context_window_control=context_window,
            lct=lct,  # type: ignore[arg-type]
            return_all_metrics=True,
            return_internals=internals,
        )
    if internals:
        seen = np.asarray(result["internals"]["similarity"]["matrix"])
        assert np.array_equal(seen, similarity), "the oracle did not see the matrix that was meant"
    return result


def divides_by_zero(result: dict[str, Any]) -> bool:
    """Whether section 9's breakdowns apply: P_max is 0, or the least coverage is a half."""
    nas = result["internals"]["metrics"]["nas"]
    no_room = any(nas["nas_d"][side]["max_penalty"] == 0 for side in ("precision", "recall"))
    return no_room or nas["regularizer"]["min_area"] == 0.5


def flat_reference(result: dict[str, Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Every intermediate result under the names of `support.core_cases.flat_alignment`."""
    internals = result["internals"]
    nas = internals["metrics"]["nas"]
    flat: dict[str, object] = {
        "window_area": nas["regularizer"]["total_mapping_window_area"],
        "grid_area": nas["regularizer"]["timeline_area"],
        "min_coverage": nas["regularizer"]["min_area"],
        "regularizer": nas["regularizer"]["value"],
        "las": internals["metrics"]["las"]["f1"],
        "nas_d": nas["nas_d"]["f1"],
        "nas_l": nas["nas_l"]["f1"],
        "nas_f1": nas["nas_f1"],
        "nas": nas["regularized_nas"],
    }
    for side in ("precision", "recall"):
        flat |= {f"{side}.{key}": value for key, value in _flat_side(internals, side).items()}
    return {key: np.asarray(value, dtype=np.float64) for key, value in flat.items()}


def _flat_side(internals: dict[str, Any], side: str) -> dict[str, object]:
    windows = np.array(internals["mapping_windows"][side])
    matches = internals["alignment"][side]["indices"]
    selections = [segment["selection"] for segment in internals["best_match"][side]["segments"]]
    candidates = [(i, c) for i, s in enumerate(selections) for c in s["candidates"]]
    distance = internals["metrics"]["nas"]["nas_d"][side]
    line = internals["metrics"]["nas"]["nas_l"][side]
    segments = line["segments"]
    assert [s["selected_index"] for s in selections] == matches
    assert [x for x, _ in line["actual_path"]] == list(range(1, len(matches) + 1))
    assert [x for x, _ in line["floor_path"]] == [x for x, _ in line["ceil_path"]]
    assert all(s["dx"] == 1 for s in segments)
    assert all(s["is_calculable"] == (s["calculation_method"] != "none") for s in segments)
    return {
        "window_start": windows[:, 0],
        "window_end": windows[:, 1],
        "match": matches,
        "similarity": internals["alignment"][side]["similarity_values"],
        "max_index": [s["max_index"] for s in selections],
        "max_similarity": [s["max_value"] for s in selections],
        "context_window": [s["context_window"] for s in selections],
        "context_applied": [s["context_window_applied"] for s in selections],
        "context_threshold": [s["context_threshold"] for s in selections],
        "reason": [REASONS.index(s["selection_reason"]) for s in selections],
        "candidate_chunk": [i for i, _ in candidates],
        "candidate_index": [c["index"] for _, c in candidates],
        "candidate_similarity": [c["similarity"] for _, c in candidates],
        "candidate_distance": [c["distance"] for _, c in candidates],
        "candidate_in_window": [c["in_window"] for _, c in candidates],
        "candidate_selected": [c["is_selected"] for _, c in candidates],
        "penalty": distance["penalties"],
        "in_window": distance["in_window"],
        "in_lct_zone": distance["in_lct_zone"],
        "tolerance_height": distance["mapping_window_height"],
        "total_penalty": distance["total_penalty"],
        "max_penalty": distance["max_penalty"],
        "segment_dy": [s["dy"] for s in segments],
        "segment_length": [s["length"] for s in segments],
        "segment_method": [METHODS.index(s["calculation_method"]) for s in segments],
        "segment_limit": [s["threshold"] for s in segments],
        "segment_limit_lct": [s["threshold_with_lct"] for s in segments],
        # Ideal paths count rows from 0, the actual path from 1.
        "floor_path": [y for _, y in line["floor_path"]],
        "ceiling_path": [y for _, y in line["ceil_path"]],
        "actual_path": [y - 1 for _, y in line["actual_path"]],
        "floor_length": line["floor_ideal_line_length"],
        "ceiling_length": line["ceil_ideal_line_length"],
        "actual_length": line["actual_line_length"],
        "las": internals["metrics"]["las"][side],
        "nas_d": distance["value"],
        "nas_l": line["value"],
    }
