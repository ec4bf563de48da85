"""Does a bundle still do what its checkpoint does? Measured with the runtime itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vcs_runtime.bundle.manifest import SCHEMA, LearnedSegmenterSpec, Manifest
from vcs_runtime.bundle.opening import Bundle

Model = tuple[Path, LearnedSegmenterSpec]
"""A boundary model: the folder that its paths start from, and how it is run."""


def boundary_agreement(reference: Model, other: Model, texts: Sequence[str]) -> float | None:
    """F1 of the boundaries that `other` sets in `texts` against those that `reference` sets, 0 to 1.

    A boundary is a character whose probability is above the model's threshold; counts are over all texts.
    None if neither sets any. Raises TextError, DeviceError, BundleError as the runtime does.
    """
    wanted, got = _boundaries(reference, texts), _boundaries(other, texts)
    total = np.count_nonzero(wanted) + np.count_nonzero(got)
    return float(2 * np.count_nonzero(wanted & got) / total) if total else None


def _boundaries(model: Model, texts: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    from vcs_runtime.inference.device import choose_device
    from vcs_runtime.segmentation.boundary_model import BoundaryModel

    folder, spec = model
    bundle = Bundle(folder, Manifest(name=spec.name, licence="", source="", files=(), schema=SCHEMA))
    opened = BoundaryModel(bundle, spec, choose_device("cpu"))
    try:
        return np.concatenate(opened.probabilities(texts)) > spec.threshold
    finally:
        opened.close()
