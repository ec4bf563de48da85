"""The kernels and products that the CUDA provider launches for NV-Embed, for all batch shapes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest

from support.cuda_stand_ins import DryGpu, Log, Run
from support.gpu_bundles import LAYERS, NARROW, SHAPES, GpuBundles
from support.gpu_runs import attention, between_products, embed, places, segment
from vcs_runtime.bundle.opening import open_bundle

Embedded = Callable[[str], Run]
HALF = {"fp16": "fp16", "bf16": "bf16", "int8": "fp16"}
# The kernels of a layer beside products and attention; norm and sum are one kernel.
MOST = {"fp16": 11, "bf16": 16, "int8": 11}
precisions = pytest.mark.parametrize("precision", HALF)
shapes = pytest.mark.parametrize("shape", SHAPES)


def batches(log: Log) -> int:
    return sum(copy.kind == "from the GPU" for copy in log.copies)


@shapes
@precisions
def test_attention_is_fused(embedded: Embedded, precision: str, shape: str) -> None:
    log = embedded(precision).log[shape]
    assert attention(log, LAYERS) == ["flash_fwd_kernel"] * LAYERS
    assert Counter(kernel.name for kernel in log.kernels)["flash_fwd_kernel"] == LAYERS * batches(
        log
    )


@pytest.mark.parametrize(
    ("capability", "kernel"),
    [
        ("7.5", "fmha_v2_flash_attention_fp16_64_32_S_128_sm75_kernel_nl"),
        ("8.0", "flash_fwd_kernel"),
        ("8.9", "flash_fwd_kernel"),
        ("12.0", "flash_fwd_kernel"),
    ],
)
def test_attention_is_fused_on_other_gpus(
    dry_gpu: DryGpu, bundles: GpuBundles, capability: str, kernel: str
) -> None:
    pair = {"a pair": SHAPES["a pair"]}
    log = dry_gpu.call(embed, str(bundles.nv_embed("fp16")), pair, capability=capability).log[
        "a pair"
    ]
    assert attention(log, LAYERS) == [kernel] * LAYERS


@shapes
@precisions
def test_products_are_in_half_precision_and_sum_in_float32(
    embedded: Embedded, precision: str, shape: str
) -> None:
    """Seven of a layer, and the wide one of the pooling; its sums over texts are float32."""
    log = embedded(precision).log[shape]
    in_float32 = [product for product in log.products if "fp32" in product.types]
    assert {product.compute for product in log.products} == {"fp32"}
    types = {product.types for product in log.products if product not in in_float32}
    assert types == {(HALF[precision],) * 3}
    assert len(log.products) - len(in_float32) >= (7 * LAYERS + 1) * batches(log)
    wide = [
        product
        for product in in_float32
        if product.n > len(SHAPES[shape]) and not product.batch > 1
    ]
    assert wide == []


@shapes
@precisions
def test_a_layer_has_few_kernels_beside_its_products(
    embedded: Embedded, precision: str, shape: str
) -> None:
    assert len(between_products(embedded(precision).log[shape])) <= MOST[precision]


@shapes
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_no_place_is_padded(embedded: Embedded, precision: str, shape: str) -> None:
    log = embedded(precision).log[shape]
    assert places(log, LAYERS) == sum(SHAPES[shape])
    assert "_GatherKernel" not in between_products(log)


@shapes
def test_a_packed_batch_has_at_most_twice_as_many_places_as_tokens(
    embedded: Embedded, shape: str
) -> None:
    """The graph in bfloat16 keeps places: the provider's attention without them has no bfloat16."""
    run, tokens = embedded("bf16"), sum(SHAPES[shape])
    assert places(run.log[shape], LAYERS) == tokens, "rotation keeps none"
    before = [sum(SHAPES[name]) for name in list(SHAPES)[: list(SHAPES).index(shape)]]
    done, padded = 0, 0
    for inputs in run.value[0].runs:
        if sum(before) <= done < sum(before) + tokens:
            padded += math.prod(inputs["gather"])
        done += math.prod(inputs["input_ids"])
    assert tokens <= padded <= max(4096, 2 * tokens)


@pytest.mark.parametrize("part", ["embedder", "segmenter", "SaT fp16", "SaT fp32"])
def test_a_layer_of_an_encoder_has_four_kernels_beside_its_products_and_attention(
    dry_gpu: DryGpu, bundles: GpuBundles, part: str
) -> None:
    """No place is padded, and only the pooling and the classifier multiply in float32."""
    if part == "embedder":
        run = dry_gpu.call(embed, str(open_bundle("default").root), SHAPES)
        log = run.log
    else:
        bundle = bundles.sat(part[4:]) if part.startswith("SaT") else open_bundle("default").root
        run = dry_gpu.call(segment, str(bundle), ["man woman dog " * 80, "cat horse"])
        log = run.log["texts"]
    kernels = ["BroadcastBiasKernel", *["SkipLayerNormKernelSmall"] * 2, "VectorizedBiasGeluKernel"]
    assert sorted(between_products(log)) == kernels
    # The kernel that summed in halves took epsilon in halves, too.
    assert "float, int, int)" in next(
        kernel.full for kernel in log.kernels if kernel.name == kernels[1]
    )
    fused = attention(log, 10_000)
    assert set(fused) == {"flash_fwd_kernel"}
    halves = [product for product in log.products if product.types == ("fp16",) * 3]
    assert len(halves) == 6 * len(fused)
    assert {product.n for product in halves} <= {
        math.prod(one["input_ids"]) for one in run.value[0].runs
    }
    others = [product for product in log.products if "fp32" in product.types]
    assert [p for p in others if p.m > 1 and p.batch == 1 and p.n > 1024] == []


def test_the_pooling_has_eight_products_of_the_models_width(embedded: Embedded) -> None:
    """The records of products are right: inputs and outputs of the wide layer per token."""
    products = embedded("fp16").log["27 x 600"].products
    square = (NARROW["hidden"], sum(SHAPES["27 x 600"]), NARROW["hidden"])
    # Those of queries and of the attention's output are alike.
    assert [(p.m, p.n, p.k) for p in products].count(square) == 8 + 2 * LAYERS
