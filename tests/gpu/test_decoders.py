"""Decoders of each family on the CUDA provider: where nodes run, and which kernels it launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from support.cuda_stand_ins import DryGpu, Run
from support.embedders import spec_of
from support.gpu_bundles import DECODER, GpuBundles
from support.gpu_runs import attention, between_products, embed

Embedded = Callable[[str, str], Run]
LAYERS = DECODER["num_hidden_layers"]
SHAPES = {"a block": [600, 601, 330, *(5 + (7 * i) % 43 for i in range(100))], "a short text": [9]}
FLASH, WINDOW = "flash_fwd_kernel", "attention_kernel_batched_impl"
WINDOW_AND_LENGTHS = f"{WINDOW}_right_padding"


def _gemma(window: str) -> list[str]:
    return [window, window, FLASH, window]


# By family and precision: attention kernels, the type of products, other kernels of a layer.
CASES = {
    ("qwen3", "fp16"): ([FLASH] * LAYERS, "fp16", 15),
    ("qwen3", "bf16"): ([FLASH] * LAYERS, "bf16", 17),
    ("qwen3", "int8"): ([FLASH] * LAYERS, "fp16", 15),
    ("gte-qwen2", "fp16"): ([FLASH] * LAYERS, "fp16", 14),
    ("nemotron", "fp16"): ([FLASH] * LAYERS, "fp16", 11),
    ("nemotron", "bf16"): ([FLASH] * LAYERS, "bf16", 16),
    ("embedding-gemma", "bf16"): (_gemma(WINDOW_AND_LENGTHS), "bf16", 23),
    ("kalm-gemma3", "int8"): (_gemma(WINDOW), "bf16", 21),  # is causal, so it needs no lengths
}
SHAPE_OPERATORS = {"Shape", "Size", "Gather", "Squeeze", "Unsqueeze", "Slice", "Concat", "Cast"}
cases = pytest.mark.parametrize(("family", "precision"), CASES)
shapes = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(scope="module")
def embedded(dry_gpu: DryGpu, bundles: GpuBundles) -> Embedded:
    """Embed texts of every shape with a decoder, once, without cuDNN."""
    return cache(
        lambda family, precision: dry_gpu.call(
            embed, str(bundles.decoder(family, precision)), SHAPES, lacking=["libcudnn.so.9"]
        )
    )


@cases
def test_decoders_compute_on_the_gpu_alone(embedded: Embedded, family: str, precision: str) -> None:
    run = embedded(family, precision)
    [session] = run.value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert len(session.nodes("CUDA")) > 60
    assert run.stderr == ""


@shapes
@cases
def test_attention_is_fused_in_every_layer(
    embedded: Embedded, family: str, precision: str, shape: str
) -> None:
    log = embedded(family, precision).log[shape]
    wanted, _, _ = CASES[family, precision]
    assert attention(log, LAYERS) == wanted
    assert not [kernel for kernel in log.kernels if "Softmax" in kernel.name]


@shapes
@cases
def test_a_layer_has_few_kernels_beside_its_products(
    embedded: Embedded, family: str, precision: str, shape: str
) -> None:
    names = between_products(embedded(family, precision).log[shape])
    _, _, most = CASES[family, precision]
    assert len(names) <= most


@shapes
@cases
def test_products_are_in_half_precision_and_sum_in_float32(
    embedded: Embedded, family: str, precision: str, shape: str
) -> None:
    log = embedded(family, precision).log[shape]
    _, kind, _ = CASES[family, precision]
    batches = sum(copy.kind == "from the GPU" for copy in log.copies)
    assert {product.compute for product in log.products} == {"fp32"}
    half = [product for product in log.products if product.types == (kind,) * 3]
    # int8 has a kernel of its own for one row, such as the last layer's for one text.
    assert len(half) >= 7 * (LAYERS - (precision == "int8")) * batches
    # What is left: pooling, and the dense layers behind it.
    assert all(set(product.types) == {"fp32"} for product in log.products if product not in half)


def test_one_row_a_text_is_computed_behind_the_last_attention(embedded: Embedded) -> None:
    log = embedded("qwen3", "fp16").log["a short text"]
    rows = [product.n for product in log.products]
    assert len(rows) == 7 * LAYERS
    assert rows == [rows[0]] * (len(rows) - 4) + [1] * 4


def test_only_bundles_with_half_precision_have_a_graph_of_their_own(bundles: GpuBundles) -> None:
    for family, precision in CASES:
        spec = spec_of(bundles.decoder(family, precision))
        assert spec.cuda is not None
        whole = family in ("gte-qwen2", "nemotron") and precision != "bf16"
        assert spec.cuda.layout == ("varlen" if whole else "packed")
