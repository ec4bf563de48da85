"""Which nodes the CUDA provider takes, what crosses the bus, and what of NVIDIA's libraries is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.cuda_stand_ins import DryGpu, Run
from support.gpu_bundles import SHAPES, GpuBundles
from support.gpu_runs import embed, segment
from vcs_runtime.bundle.opening import open_bundle

Embedded = Callable[..., Run]
# What only says how large something is: a few numbers, which the provider leaves to the CPU on purpose.
SHAPE_OPERATORS = {"Shape", "Size", "Gather", "Squeeze", "Unsqueeze", "Slice", "Concat", "Cast"}
SHORT = {name: SHAPES[name] for name in ("a pair", "a short text")}
TEXTS = ["man woman dog " * 80, "cat horse"]


@pytest.fixture(scope="session")
def default_bundle() -> Path:
    return open_bundle("default").root


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_nv_embed_computes_on_the_gpu_alone(embedded: Embedded, precision: str) -> None:
    [session] = embedded(precision).value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert len(session.nodes("CUDA")) > 60


def test_the_default_embedder_computes_on_the_gpu_alone(dry_gpu: DryGpu, default_bundle: Path) -> None:
    [session] = dry_gpu.call(embed, str(default_bundle), SHORT).value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert len(session.nodes("CUDA")) > 60


@pytest.mark.parametrize("bundle", ["default", "SaT fp16"])
def test_a_learned_segmenter_computes_on_the_gpu_alone(
    dry_gpu: DryGpu, bundles: GpuBundles, default_bundle: Path, bundle: str
) -> None:
    folder = default_bundle if bundle == "default" else bundles.sat("fp16")
    run = dry_gpu.call(segment, str(folder), TEXTS)
    [session] = run.value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert run.log["texts"].kernels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_only_inputs_and_vectors_cross_the_bus(embedded: Embedded, precision: str, shape: str) -> None:
    run = embedded(precision)
    log, [session] = run.log[shape], run.value
    runs = sum(copy.kind == "from the GPU" for copy in log.copies)
    vectors = [copy.bytes for copy in log.copies if copy.kind == "from the GPU"]
    assert sum(vectors) == len(SHAPES[shape]) * 512 * 4
    assert sum(copy.kind == "to the GPU" for copy in log.copies) <= len(session.runs[0]) * runs
