"""ONNX Runtime's real CUDA provider over stand-ins of NVIDIA's libraries (`support.cuda_stand_ins`)."""

from __future__ import annotations

import pytest

from support.cuda_stand_ins import DryGpu


@pytest.fixture(scope="session")
def dry_gpu(tmp_path_factory: pytest.TempPathFactory) -> DryGpu:
    """Stand-ins that are compiled once."""
    return DryGpu.compile(tmp_path_factory.mktemp("stand-ins"))
