"""What quantisation loses, measured between two graphs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from support.stories import story
from vcs_export.checks.quantization_error import embedder_quantization_error
from vcs_runtime.bundle.manifest import QuantizationErrorStats
from vcs_runtime.bundle.opening import open_bundle


def test_a_graph_compared_with_itself_has_an_error_that_a_manifest_takes(tiny_bundle: Path) -> None:
    """Cosines of 1 are rounded upwards here and there, and so is their smallest above their mean."""
    bundle = open_bundle(tiny_bundle)
    spec = bundle.manifest.embedder
    assert spec
    for count in (1, 3, 7, 40):
        error = embedder_quantization_error(
            bundle.path(spec.model), bundle.root, spec, [story(seed, 3) for seed in range(count)]
        )
        assert 1.0 - 1e-6 < error.cosine_min <= error.cosine_mean <= 1.0
        assert not error.vcs_change
        assert msgspec.convert(msgspec.to_builtins(error), QuantizationErrorStats) == error
