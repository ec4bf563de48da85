"""How much of a GPU's memory NV-Embed takes beside its weights, over many batches of all shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from support.cuda_stand_ins import DryGpu, Run
from support.gpu_bundles import GpuBundles
from support.gpu_runs import embed_blocks

Blocks = Callable[..., Run]
COUNT = 20  # of blocks, in about 160 runs
LIMIT = 5.0  # GB


@pytest.fixture(scope="module")
def blocks(dry_gpu: DryGpu, bundles: GpuBundles) -> Blocks:
    """Embed twenty blocks, each once, with one layer of NV-Embed at full width."""

    @cache
    def run(limit: float | None) -> Run:
        return dry_gpu.call(embed_blocks, str(bundles.wide("fp16")), COUNT, limit)

    return run


def test_memory_beside_the_weights_is_bounded(blocks: Blocks) -> None:
    log = blocks(None).log
    assert log.peak - log["block 0"].level < 3.5e9


def test_a_limit_of_memory_does_not_shrink_batches_in_the_long_run(blocks: Blocks) -> None:
    run = blocks(LIMIT)
    assert run.log.peak <= LIMIT * 1e9
    assert min(run.value) > 0.99 * run.value[0] > 4000
    assert not run.log.refused


def test_a_closed_embedder_gives_its_memory_back(blocks: Blocks) -> None:
    # What is left held inputs, and ONNX Runtime shares it among all sessions of a process.
    assert blocks(None).log["closed"].final <= 8 << 20
