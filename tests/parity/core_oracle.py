"""The reference package as an oracle for the core: any similarity matrix pushed through it (spec/vcs.md, section 13)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import vcs


def reference_result(
    similarity: npt.NDArray[np.float64],
    gas: float,
    *,
    lct: float = 0.0,
    context_cutoff: float = 0.6,
    context_window: float = 4.0,
) -> dict[str, Any]:
    """`compute_vcs_score` with all metrics and internals, as if the chunks had this similarity matrix."""
    n_ref, n_gen = similarity.shape
    segments = {"reference": [f"r{i}" for i in range(n_ref)], "generated": [f"g{j}" for j in range(n_gen)]}
    rows = torch.tensor(similarity, dtype=torch.float64)
    identity = torch.eye(n_gen, dtype=torch.float64)

    def embed_chunks(chunks: list[str]) -> torch.Tensor:
        return rows if chunks[0].startswith("r") else identity

    def embed_texts(texts: list[str]) -> torch.Tensor:
        assert texts == ["reference", "generated"]
        return torch.tensor([[1.0, 0.0], [gas, math.sqrt(1.0 - gas * gas)]], dtype=torch.float64)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # its divisions by zero on two by two (section 9)
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
            return_internals=True,
        )
    matrix = np.asarray(result["internals"]["similarity"]["matrix"])
    assert np.array_equal(matrix, similarity), "the oracle did not see the matrix that was meant"
    return result
