"""Explanations of drawn pairs, without a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcs_numba import Params, align
from vcs_runtime import Result
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.verdicts import Thresholds

#: Name -> a pair: equal, three reasons for a 0, and two that cannot be judged.
PAIRS = {
    "equal": (np.eye(5), 1.0),
    "gate": (np.eye(6)[[2, 1, 0, 3, 4, 5]] * 0.8, 0.4),
    "backwards": (np.fliplr(np.eye(6)), 0.9),
    "nothing": (np.fliplr(np.eye(6)) * 0.3, 0.2),
    "unequal": (np.full((3, 2), 0.9), 0.9),
    "single": (np.full((1, 1), 0.9), 0.9),
}


def explained(
    similarity: object,
    gas: float = 0.8,
    texts: tuple[Sequence[str], Sequence[str]] | None = None,
    thresholds: Thresholds = Thresholds(),
    params: Params = Params(),
    vectors: tuple[Sequence[np.ndarray], Sequence[np.ndarray]] | None = None,
) -> Explanation:
    """The explanation of a similarity matrix; chunks are called r1, ... and g1, ..."""
    matrix = np.asarray(similarity, dtype=np.float64)
    n_ref, n_gen = matrix.shape
    reference, generated = texts or (
        [f"r{i + 1}" for i in range(n_ref)],
        [f"g{j + 1}" for j in range(n_gen)],
    )
    result = Result(
        align(matrix, params).scores(gas), n_ref, n_gen, "vcs|def:1.0.0|drawn", segmenter="none"
    )
    rows = None if vectors is None else (np.array(vectors[0]), np.array(vectors[1]))
    evidence = Evidence((list(reference), list(generated)), matrix, gas, vectors=rows)
    return explain(result, evidence, params, thresholds)


def drawn(n_ref: int, n_gen: int, seed: int = 0) -> Explanation:
    """A pair of this size with matches near the diagonal, some moved, some without support."""
    draw = np.random.default_rng(seed)
    values = draw.uniform(0.0, 0.45, (n_ref, n_gen))
    for j in range(n_gen):
        i = j * n_ref // n_gen
        if j % 5 == 4:
            i = int(draw.integers(n_ref))
        if j % 7 != 6:
            values[i, j] = draw.uniform(0.6, 0.95)
    words = [
        ["It costs $5 & <b>more</b>.", "漢字と絵文字 😀", "A long sentence " * 12],
        ["x_1^2 said \\alpha", "שלום", "b"],
    ]
    texts = tuple(
        [f"{side[k % 3]} {k + 1}" for k in range(count)]
        for side, count in zip(words, (n_ref, n_gen), strict=True)
    )
    return explained(values, 0.8, (texts[0], texts[1]))
