"""Which kernels and products the CUDA provider launches for NV-Embed, for batches of every shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.cuda_stand_ins import Run
from support.gpu_bundles import LAYERS, SHAPES
from support.gpu_runs import attention

Embedded = Callable[..., Run]
PRECISIONS = ["fp16", "bf16"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_attention_is_fused(embedded: Embedded, precision: str, shape: str) -> None:
    log = embedded(precision).log[shape]
    assert set(attention(log, LAYERS)) == {"flash_fwd_kernel"}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_products_are_in_half_precision(embedded: Embedded, precision: str, shape: str) -> None:
    """All but the pooling's sums, whose count does not grow with the layers."""
    products = embedded(precision).log[shape].products
    half = "bf16" if precision == "bf16" else "fp16"
    of_layers = [product for product in products if product.types == (half, half, half)]
    runs = len(embedded(precision).log[shape].products) // len(products)
    assert len(of_layers) >= 7 * LAYERS * runs
