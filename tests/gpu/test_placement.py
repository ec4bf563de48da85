"""Which nodes the CUDA provider takes, what crosses the bus, and which libraries it needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.cuda_stand_ins import DryGpu, Run
from support.gpu_bundles import SHAPES, GpuBundles
from support.gpu_runs import embed, segment
from support.tiny_fast import write_fast_training
from support.tiny_modernbert import write_tiny_modernbert
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.families.static import build_static
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle

Embedded = Callable[..., Run]
# Sizes of a few numbers, which the provider leaves to the CPU on purpose.
SHAPE_OPERATORS = {"Shape", "Size", "Gather", "Squeeze", "Unsqueeze", "Slice", "Concat", "Cast"}
SHORT = {name: SHAPES[name] for name in ("a pair", "a short text")}
TEXTS = ["man woman dog " * 80, "cat horse"]


@pytest.fixture(scope="session")
def default_bundle() -> Path:
    return open_bundle("default").root


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_nv_embed_computes_on_the_gpu_alone(embedded: Embedded, precision: str) -> None:
    run = embedded(precision)
    [session] = run.value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert len(session.nodes("CUDA")) > 60
    assert run.stderr == ""


def test_the_default_embedder_computes_on_the_gpu_alone(
    dry_gpu: DryGpu, default_bundle: Path
) -> None:
    [session] = dry_gpu.call(embed, str(default_bundle), SHORT).value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert len(session.nodes("CUDA")) > 60


def test_modernbert_computes_on_the_gpu_alone(dry_gpu: DryGpu, tmp_path: Path) -> None:
    checkpoint = write_tiny_modernbert(tmp_path / "checkpoint")
    build = Build(checkpoint, tmp_path / "bundle", BundleInfo("tiny", "CC0-1.0", "random"))
    bundle = build_sentence_bundle(build)
    [session] = dry_gpu.call(embed, str(bundle), SHORT).value
    # The length and the number of blocks are a few numbers too.
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS | {"Add", "Sub", "Div", "Greater", "Where"}
    assert len(session.nodes("CUDA")) > 200


@pytest.fixture(scope="session")
def segmenters(
    bundles: GpuBundles,
    default_bundle: Path,
    tiny_bundle: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("fast")
    training = write_fast_training(tiny_bundle, folder / "fast.safetensors")
    fast = build_static(open_bundle(tiny_bundle), training, folder / "bundle")
    return {"default": default_bundle, "fast": fast, "SaT fp16": bundles.sat("fp16")}


@pytest.mark.parametrize("bundle", ["default", "fast", "SaT fp16"])
def test_a_learned_segmenter_computes_on_the_gpu_alone(
    dry_gpu: DryGpu, segmenters: dict[str, Path], bundle: str
) -> None:
    run = dry_gpu.call(segment, str(segmenters[bundle]), TEXTS)
    [session] = run.value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert run.log["texts"].kernels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_only_inputs_and_vectors_cross_the_bus(
    embedded: Embedded, precision: str, shape: str
) -> None:
    run = embedded(precision)
    log, [session] = run.log[shape], run.value
    runs = sum(copy.kind == "from the GPU" for copy in log.copies)
    vectors = [copy.bytes for copy in log.copies if copy.kind == "from the GPU"]
    assert sum(vectors) == len(SHAPES[shape]) * 512 * 4
    assert sum(copy.kind == "to the GPU" for copy in log.copies) <= len(session.runs[0]) * runs


def test_a_learned_segmenter_needs_no_cudnn(dry_gpu: DryGpu, segmenters: dict[str, Path]) -> None:
    for folder in segmenters.values():
        run = dry_gpu.call(segment, str(folder), TEXTS, lacking=["libcudnn.so.9"])
        assert run.log["texts"].kernels


@pytest.mark.parametrize("bundle", ["fp16", "bf16", "int8", "BERT"])
def test_cudnn_is_not_needed(
    dry_gpu: DryGpu, bundles: GpuBundles, tiny_bundle: Path, bundle: str
) -> None:
    folder = tiny_bundle if bundle == "BERT" else bundles.nv_embed(bundle)
    run = dry_gpu.call(embed, str(folder), SHORT, lacking=["libcudnn.so.9"])
    assert run.log["a pair"].kernels


def test_widths_of_padded_batches_are_multiples_of_4(dry_gpu: DryGpu, default_bundle: Path) -> None:
    """The CUDA provider has no fused attention for a mask of another width."""
    shapes = {"201": [201] * 3, "mixed": [201, 199, 171, 77, 9]}
    run = dry_gpu.call(embed, str(default_bundle), shapes, None, "cuda:0:fp32")
    assert [inputs["input_ids"][1] for inputs in run.value[0].runs] == [204, 204]
