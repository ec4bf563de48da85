"""Which numbers a model's matrices are multiplied with: measured on texts, for formats with fixed ranges."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from vcs_export.checks.quantization_error import outputs, tokens
from vcs_export.errors import ExportError
from vcs_export.quantization.fp8 import Ranges
from vcs_runtime.bundle.manifest import EmbedderSpec


def calibration_texts() -> list[str]:
    """What is measured on unless a user brings texts: the lines of `data/calibration.txt`."""
    return files("vcs_export").joinpath("data/calibration.txt").read_text("utf-8").splitlines()


def calibrate(
    exact: Path, names: Sequence[str], tokenizer: Path, spec: EmbedderSpec, texts: Sequence[str]
) -> Ranges:
    """Run an unquantised graph on `texts` and return the ranges of what its weights are multiplied with.

    exact  a graph that was written with `watch`; `names` are its watched weights
    spec   how it is run; its tokenizer is `tokenizer`

    Raises ExportError if one is not finite; DeviceError, BundleError from the runtime.
    """
    found = np.zeros(len(names), np.float64)
    for _, (_, largest) in outputs(exact, spec, tokens(tokenizer, spec, texts)):
        found = np.maximum(found, largest)  # NaN stays NaN
    if not np.isfinite(found).all():
        raise ExportError("calibration: a text gives NaN or infinity in the unquantised model")
    return dict(zip(names, found.tolist(), strict=True))
