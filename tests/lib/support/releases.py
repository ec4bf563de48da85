"""Tests that need an ONNX Runtime of some release."""

from __future__ import annotations

import pytest

from vcs_runtime.inference.device import import_onnxruntime

DECODERS = pytest.mark.skipif(
    tuple(map(int, import_onnxruntime().__version__.split(".")[:2])) < (1, 25),
    reason="this ONNX Runtime is too old for decoders (tests/inference/test_releases.py)",
)
