"""Calibration: the ranges of the inputs of a model's matrices, for formats with fixed ranges."""

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
    """Return the lines of `data/calibration.txt`, on which is measured unless a user brings texts."""
    return files("vcs_export").joinpath("data/calibration.txt").read_text("utf-8").splitlines()


def calibrate(
    exact: Path, names: Sequence[str], tokenizer: Path, spec: EmbedderSpec, texts: Sequence[str]
) -> Ranges:
    """Measure the largest inputs of a graph's matrices.

    Parameters
    ----------
    exact
        An unquantised graph that was written with `watch`.
    names
        Its watched weights.
    tokenizer
        A `tokenizer.json`.
    spec
        How the graph is run.
    texts
        The texts to run it on.

    Returns
    -------
    ranges
        The largest absolute input of each weight, by the weight's name.

    Raises
    ------
    ExportError
        An input is not finite.
    BundleError, DeviceError
        The runtime cannot run the graph.
    """
    ranges = np.zeros(len(names), np.float64)
    for _, (_, largest) in outputs(exact, spec, tokens(tokenizer, spec, texts)):
        ranges = np.maximum(ranges, largest)  # NaN stays NaN
    if not np.isfinite(ranges).all():
        raise ExportError("calibration: a text gives NaN or infinity in the unquantised model")
    return dict(zip(names, ranges.tolist(), strict=True))
