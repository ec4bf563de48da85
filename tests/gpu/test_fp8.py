"""FP8 on CUDA: its products, what stands between them, its memory, and where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.cuda_stand_ins import DryGpu, Log, Run, mark
from support.gpu_bundles import LAYERS, NARROW, SHAPES, GpuBundles
from support.gpu_runs import between_products

Embedded = Callable[[str], Run]
# Outputs and inputs of the products of a layer, as q, k, v, o, gate, up and down; then of the pooling.
WIDTH, INNER, GROUP = NARROW["hidden"], NARROW["intermediate"], NARROW["groups"] * NARROW["head_dim"]
OF_A_LAYER = sorted([(WIDTH, WIDTH)] * 2 + [(GROUP, WIDTH)] * 2 + [(INNER, WIDTH)] * 2 + [(WIDTH, INNER)])
OF_THE_POOLING = [(WIDTH, WIDTH)] * 8
PRODUCTS = 7 * LAYERS + len(OF_THE_POOLING)
WORKSPACE = 32 << 20


def runs_of(log: Log) -> int:
    return sum(copy.kind == "from the GPU" for copy in log.copies)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_matrix_is_multiplied_in_fp8(embedded: Embedded, shape: str) -> None:
    log = embedded("fp8").log[shape]
    products = [product for product in log.products if product.types == ("e4m3", "e4m3", "fp16")]
    expected = sorted([*OF_A_LAYER * LAYERS, *OF_THE_POOLING] * runs_of(log))
    assert sorted((product.m, product.k) for product in products) == expected
    # cuBLASLt sums products of FP8 in float32, and refuses other types.
    assert {(product.function, product.compute) for product in products} == {("cublasLtMatmul", "fp32")}
    tokens = sum(SHAPES[shape])
    assert sum(product.n for product in products) == tokens * PRODUCTS


def test_rounding_takes_four_kernels_of_a_layer(embedded: Embedded) -> None:
    fp8, fp16 = (between_products(embedded(precision).log["a block"]) for precision in ("fp8", "fp16"))
    assert [kernel for kernel in fp8 if not kernel.startswith("QuantizeLinear")] == fp16
    assert len(fp8) == len(fp16) + 4


def test_each_product_waits_and_takes_a_handle_and_memory(embedded: Embedded) -> None:
    """What ONNX Runtime's kernel does for each product: why FP8 pays with large batches only."""
    log = embedded("fp8").log["a short text"]
    assert log.calls.count("cublasLtCreate") == PRODUCTS
    assert [event.bytes for event in log.memory if event.what == "malloc"].count(WORKSPACE) >= PRODUCTS


def open_and_embed(bundle: str) -> None:
    from vcs_runtime import Embedder

    with Embedder.open(bundle, "cuda:0") as embedder:
        mark("open")
        embedder.embed(["a dog runs into the garden"] * 4)
        mark("embedded")


def test_nothing_is_widened_when_a_bundle_is_opened(dry_gpu: DryGpu, bundles: GpuBundles) -> None:
    """One layer at full width, whose matrices are 536 MB in half precision; pooling and words are fp16 in both."""
    paths = bundles.wide("fp16"), bundles.wide("fp8", calibration=["a dog runs"], texts=["two cats"])
    half, narrow = (dry_gpu.call(open_and_embed, str(path)).log for path in paths)
    matrices = 2 * (4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) + 32768 * 4096)
    saved = half["open"].level - narrow["open"].level
    assert saved == pytest.approx(matrices / 2, rel=0.01)
    # A run takes no more beside the weights than one in half precision, but for cuBLASLt's workspace.
    beside = [log["open"].peak - log["open"].level for log in (half, narrow)]
    assert beside[1] <= beside[0] + WORKSPACE + (16 << 20)


@pytest.mark.parametrize("precision", ["fp8", "int8"])
def test_export_measures_on_the_gpu_and_on_the_cpu_if_that_fails(
    dry_gpu: DryGpu, bundles: GpuBundles, tmp_path: Path, precision: str
) -> None:
    """A stand-in's vectors are zeros, which have no direction: that is how one sees who computed."""
    bundles.nv_embed("fp16")
    text = tmp_path / "text"
    text.write_text("a dog runs into the garden\n")
    export = [
        "export", "nv-embed-v2", "--from", str(bundles.folder / "narrow"), "--precision", precision,
        "--text", str(text), "--calibration", str(text), "--least-cosine", "-1",
    ]  # fmt: skip
    on_gpu = dry_gpu.command([*export, "-o", str(tmp_path / "gpu")])
    assert f"{precision} is measured on ort-cuda" in on_gpu.stderr
    assert f"{precision} returned a vector of zeros for a text" in on_gpu.stderr
    assert not [
        call for call in on_gpu.log.calls if "Reduce" in call
    ]  # cuDNN's, which is not needed otherwise
    # What is measured is the graph for CUDA; the other one multiplies fp8 in fp16, and int8 in float32.
    types = {product.types for product in on_gpu.log.products if product.k == NARROW["intermediate"]}
    assert types == {("fp16",) * 3, *({("e4m3", "e4m3", "fp16")} if precision == "fp8" else ())}
    small = dry_gpu.command([*export, "-o", str(tmp_path / "small")], memory=4e6)
    assert f"{precision} is measured on the CPU after all" in small.stderr
    assert "mean 0.9" in small.stderr
    named = dry_gpu.command([*export, "-o", str(tmp_path / "named"), "--device", "cuda:0"], memory=4e6)
    assert named.returncode
    assert not (tmp_path / "named").exists()
