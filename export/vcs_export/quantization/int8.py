"""Dynamic quantisation of a graph's linear layers to int8, by ONNX Runtime's tool.

Weights get a scale for each output channel. Activations get one scale per tensor when the model is
run, over the whole batch. The runtime therefore runs such a model one window at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcs_runtime.util.extras import require
from vcs_runtime.util.telemetry import refuse_telemetry


def quantize(source: Path, model: Path) -> None:
    """Quantise the linear layers of a graph to int8.

    Products of two activations and the classifier stay as they are. Weights are written beside
    `model`.
    """
    refuse_telemetry()
    onnx = require("onnx", "export", "int8")
    quantization = require("onnxruntime.quantization", "cpu", "int8")
    nodes = onnx.load(source, load_external_data=False).graph.node
    with _quiet():
        quantization.quantize_dynamic(
            source,
            model,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            # Processors without VNNI add two products in 16 bits. With 7 bits the sum fits, so that
            # every processor computes the same integers. Unsigned weights would be slower.
            weight_type=quantization.QuantType.QInt8,
            reduce_range=True,
            nodes_to_exclude=[node.name for node in nodes if "classifier.weight" in node.input],
            use_external_data_format=True,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the tool's advice to optimise the graph first, which the runtime does later."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
