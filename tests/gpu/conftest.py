"""ONNX Runtime's real CUDA provider over stand-ins (`support.cuda_stand_ins`)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from support.cuda_stand_ins import DryGpu, Run
from support.gpu_bundles import SHAPES, GpuBundles
from support.gpu_runs import embed

# Files that need the same bundles, or the same runs. The others have their own. pytest-xdist begins
# with the group that has most tests, so the longest test of all is in a large one.
TOGETHER = {
    "test_measuring": "test_decoders",
    "test_fp8": "full width",
    "test_memory": "full width",
    "test_launches": "NV-Embed",
    "test_placement": "NV-Embed",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what is built once for several tests to one process, where pytest-xdist is there."""
    for item in items:
        name = item.path.stem
        item.add_marker(pytest.mark.xdist_group(TOGETHER.get(name, name)))


@pytest.fixture(scope="session")
def dry_gpu(tmp_path_factory: pytest.TempPathFactory) -> DryGpu:
    """Stand-ins that are compiled once."""
    return DryGpu.compile(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuBundles]:
    """Bundles that are built at their first use."""
    folder = tmp_path_factory.mktemp("bundles")
    yield GpuBundles(folder)
    shutil.rmtree(folder)  # gigabytes, which pytest would keep for three runs


@pytest.fixture(scope="session")
def embedded(dry_gpu: DryGpu, bundles: GpuBundles) -> Callable[[str], Run]:
    """Embed texts of every shape with a tiny NV-Embed of a precision, once."""
    return cache(lambda precision: dry_gpu.call(embed, str(bundles.nv_embed(precision)), SHAPES))
