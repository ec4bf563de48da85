"""How much of a GPU's memory NV-Embed takes beside its weights, over many batches of all shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from support.cuda_stand_ins import DryGpu, Run
from support.gpu_bundles import GpuBundles
from support.gpu_runs import embed_blocks

Row = Callable[[str, object, object], None]
Blocks = Callable[..., Run]
COUNT = 20  # of blocks, in about 160 runs
LIMIT = 5.0  # GB
OLD = {"arena_extend_strategy": "kSameAsRequested"}


@pytest.fixture(scope="module")
def blocks(dry_gpu: DryGpu, bundles: GpuBundles) -> Blocks:
    """Embed twenty blocks with one layer of NV-Embed at full width, whose buffers all layers share; each once."""

    @cache
    def run(limit: float | None, old: bool = False) -> Run:
        return dry_gpu.call(embed_blocks, str(bundles.wide("fp16")), COUNT, limit, OLD if old else None)

    return run


def beside(run: Run) -> float:
    """Return the peak of the memory beside the weights, in GB."""
    return (run.log.peak - run.log["block 0"].level) / 1e9


def test_memory_beside_the_weights_is_bounded(blocks: Blocks, row: Row) -> None:
    before, now = beside(blocks(None, old=True)), beside(blocks(None))
    row("4   fp16: peak beside the weights, 160 runs", f"{before:.1f} GB", f"{now:.1f} GB")
    assert now < 3.5


def test_a_limit_of_memory_does_not_shrink_batches_in_the_long_run(blocks: Blocks, row: Row) -> None:
    before, now = blocks(LIMIT, old=True), blocks(LIMIT)
    tokens = [f"{run.value[0]:,} -> {run.value[-1]:,}" for run in (before, now)]
    row(f"4   fp16, limit of {LIMIT:g} GB: tokens of a run, first and last block", *tokens)
    row(
        f"4   fp16, limit of {LIMIT:g} GB: peak",
        f"{before.log.peak / 1e9:.1f} GB",
        f"{now.log.peak / 1e9:.1f} GB",
    )
    assert now.log.peak <= LIMIT * 1e9
    assert min(now.value) > 0.99 * now.value[0] > 4000
    assert not now.log.refused


def test_a_closed_embedder_gives_its_memory_back(blocks: Blocks) -> None:
    # What is left held inputs, and ONNX Runtime shares it among all sessions of a process.
    assert blocks(None).log["closed"].final <= 8 << 20
