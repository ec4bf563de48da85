"""Agreement of two learned segmenters on where segments end, measured with the runtime itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vcs_runtime.bundle.manifest import SCHEMA, LearnedSegmenterSpec, Manifest
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.inference.device import choose_device
from vcs_runtime.segmentation.boundary_model import BoundaryModel

Model = tuple[Path, LearnedSegmenterSpec]
"""A learned segmenter: the folder that its paths start from, and how it is run."""


def boundary_agreement(reference: Model, other: Model, texts: Sequence[str]) -> float | None:
    """Measure how far the boundaries of two models agree.

    A boundary is a character whose probability is above the model's threshold. Counts are over all texts.
    """
    expected, actual = _boundaries(reference, texts), _boundaries(other, texts)
    total = np.count_nonzero(expected) + np.count_nonzero(actual)
    return float(2 * np.count_nonzero(expected & actual) / total) if total else None


def _boundaries(model: Model, texts: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    folder, spec = model
    bundle = Bundle(folder, Manifest(name=spec.name, licence="", source="", files=(), schema=SCHEMA))
    opened = BoundaryModel(bundle, spec, choose_device("cpu"))
    try:
        return np.concatenate(opened.probabilities(texts)) > spec.threshold
    finally:
        opened.close()
