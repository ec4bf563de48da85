"""The intermediate results of a pair under the keys of the reference package 1.0.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy.typing as npt

from vcs_numba import Alignment, Orientation, Scores

#: The scores in the order of the reference package.
KEYS: Final = (
    "Precision LAS", "Recall LAS", "LAS", "Precision NAS-D", "Recall NAS-D", "NAS-D", "Precision NAS-L",
    "Recall NAS-L", "NAS-L", "NAS-F1", "Window-Regularizer", "NAS", "GAS", "GAS-LAS-Scaled", "VCS",
)  # fmt: skip


def internals_of(
    chunks: tuple[Sequence[str], Sequence[str]], similarity: npt.NDArray[Any], alignment: Alignment,
    scores: Scores, config: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return what the reference package calls `internals`; `similarity` is (n_ref, n_gen).

    Chunks of a line count from 1, everything else from 0, as there.
    """
    a = alignment
    sides = {"precision": a.precision, "recall": a.recall}
    reference, generated = chunks
    pairs = {
        "precision": [(j, i) for j, i in enumerate(a.precision.match.tolist())],
        "recall": [(j, i) for i, j in enumerate(a.recall.match.tolist())],
    }
    return {
        "texts": {
            "reference_chunks": list(reference),
            "generated_chunks": list(generated),
            "reference_length": a.n_ref,
            "generated_length": a.n_gen,
        },
        "similarity": {"matrix": similarity.tolist()},
        "mapping_windows": {name: _windows(side) for name, side in sides.items()},
        "alignment": {
            name: {
                "matches": pairs[name],
                "indices": side.match.tolist(),
                "similarity_values": side.similarity.tolist(),
                "aligned_segments": [(j + 1, i + 1, generated[j], reference[i]) for j, i in pairs[name]],
            }
            for name, side in sides.items()
        },
        "metrics": {
            "gas": {"value": scores.gas},
            "las": {"precision": scores.las_precision, "recall": scores.las_recall, "f1": scores.las},
            "nas": {
                "nas_d": {**{name: _distance(side) for name, side in sides.items()}, "f1": scores.nas_d},
                "nas_l": {**{name: _line(side) for name, side in sides.items()}, "f1": scores.nas_l},
                "regularizer": {
                    "value": scores.window_regularizer,
                    "total_mapping_window_area": a.window_area,
                    "timeline_area": a.grid_area,
                    "min_area": a.min_coverage,
                },
                "nas_f1": scores.nas_f1,
                "regularized_nas": scores.nas,
            },
            "vcs": {"value": scores.vcs, "gas_las_scaled": scores.sas},
        },
        "config": dict(config),
        "best_match": {
            name: {
                "direction": name,
                "segments": [_match(i, side, config["context_cutoff_value"]) for i in range(side.x)],
            }
            for name, side in sides.items()
        },
    }


def _windows(side: Orientation) -> list[tuple[int, int]]:
    return list(zip(side.window_start.tolist(), side.window_end.tolist(), strict=True))


def _distance(side: Orientation) -> dict[str, Any]:
    return {
        "value": side.nas_d, "mapping_window_height": side.tolerance_height,
        "max_penalty": side.max_penalty, "total_penalty": side.total_penalty,
        "penalties": side.penalty.tolist(), "in_window": side.in_window.tolist(),
        "in_lct_zone": side.in_lct_zone.tolist(),
    }  # fmt: skip


def _line(side: Orientation) -> dict[str, Any]:
    points = list(enumerate((side.match + 1).tolist(), 1))
    rises = zip(side.segment_dy.tolist(), side.segment_method, side.segment_length.tolist(), strict=True)
    return {
        "value": side.nas_l,
        "actual_line_length": side.actual_length,
        "floor_ideal_line_length": side.floor_length,
        "ceil_ideal_line_length": side.ceiling_length,
        "average_ideal_line_length": (side.floor_length + side.ceiling_length) / 2,
        "segments": [
            {
                "start": points[i],
                "end": points[i + 1],
                "dx": 1,
                "dy": rise,
                "threshold": float(side.segment_limit),
                "threshold_with_lct": side.segment_limit_lct,
                "is_calculable": method != "none",
                "calculation_method": method,
                "length": length,
            }
            for i, (rise, method, length) in enumerate(rises)
        ],
        "floor_path": list(enumerate(side.floor_path.tolist(), 1)),
        "ceil_path": list(enumerate(side.ceiling_path.tolist(), 1)),
        "actual_path": points,
    }


def _match(chunk: int, side: Orientation, context_cutoff: float) -> dict[str, Any]:
    window = {"start": int(side.window_start[chunk]), "end": int(side.window_end[chunk])}
    match = int(side.match[chunk])
    candidates = side.candidates.of(chunk)
    selection: dict[str, Any] = {
        "max_value": float(side.max_similarity[chunk]), "max_index": int(side.max_index[chunk]),
        "context_range": 1 - context_cutoff, "context_window": float(side.context_window[chunk]),
        "context_threshold": float(side.context_threshold[chunk]),
        "context_window_applied": bool(side.context_window[chunk] > 0.0), "candidates": [],
    }  # fmt: skip
    if len(candidates) > 1:  # a candidate is listed only beside others
        selection["mapping_window"] = dict(window)
        selection["candidates"] = [
            {
                "index": candidate["index"],
                "similarity": candidate["similarity"],
                "in_window": candidate["in_window"],
                "distance": candidate["distance"],
                "is_selected": candidate["index"] == match,
            }
            for candidate in candidates
        ]
    selection |= {"selected_index": match, "selection_reason": side.reason[chunk]}
    return {"index": chunk, "mapping_window": window, "selection": selection, "valid": True}
