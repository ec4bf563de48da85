"""Bundles around a random SaT of a few hundred kilobytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.checkpoints.sat import WORDS, write_tiny_sat
from vcs_export.families.build import Build, Quantization
from vcs_export.families.sat import SatOptions, build_sat_bundle
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec
from vcs_runtime.bundle.opening import open_bundle


def build_tiny_sat_bundle(
    folder: Path,
    *,
    threshold: float = 0.25,
    stride: int = 64,
    precision: str | None = None,
    **checkpoint: Any,
) -> Path:
    """A bundle `folder/bundle` of a tiny checkpoint `folder/checkpoint` with these settings."""
    source = write_tiny_sat(folder / "checkpoint", **checkpoint)
    info = BundleInfo("tiny-sat", "CC0-1.0", "random numbers")
    texts = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(0, len(WORDS), 5)]
    build = Build(source, folder / "bundle", info, Quantization(precision, texts))
    return build_sat_bundle(build, SatOptions(threshold=threshold, stride=stride))


def boundary(bundle: Path) -> LearnedSegmenterSpec:
    """How the learned segmenter of a bundle is run."""
    segmenter = open_bundle(bundle).manifest.segmenter
    assert segmenter is not None
    assert segmenter.model is not None
    return segmenter.model
