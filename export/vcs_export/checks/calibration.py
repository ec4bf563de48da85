"""Calibration: the ranges of the inputs of a model's matrices, for formats with fixed ranges."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from vcs_export.checks.quantization_error import outputs, tokens
from vcs_export.errors import ExportError
from vcs_export.quantization.fp8 import Range, Ranges
from vcs_runtime.bundle.manifest import EmbedderSpec


def calibration_texts() -> list[str]:
    """Return the lines of `data/calibration.txt`, on which is measured unless a user brings texts."""
    return files("vcs_export").joinpath("data/calibration.txt").read_text("utf-8").splitlines()


def calibrate(
    exact: Path,
    names: Sequence[str],
    tokenizer: Path,
    spec: EmbedderSpec,
    texts: Sequence[str],
    device: str = "cpu",
) -> Ranges:
    """Measure the ranges of the inputs of a graph's matrices."""
    largest, total, count = np.zeros(len(names), np.float64), np.zeros(len(names), np.float64), 0
    rows = tokens(tokenizer, spec, texts)
    for batch, (_, most, mean) in outputs(exact, spec.layout, rows, device):
        size = sum(len(rows[row]) for row in batch)
        largest = np.maximum(largest, most)  # NaN stays NaN
        total, count = total + size * mean.astype(np.float64), count + size
    if not (np.isfinite(largest).all() and np.isfinite(total).all()):
        raise ExportError("calibration: a text gives NaN or infinity in the unquantised model")
    ranges = map(Range, largest.tolist(), (total / count).tolist())
    return dict(zip(names, ranges, strict=True))
