"""The linear layers of a graph in int8: dynamic quantisation, by ONNX Runtime's own tool.

Weights have a scale for each output channel and are fixed here; activations get one scale a tensor when the
model is run, over whatever is in the batch: the runtime therefore runs such a model one window at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vcs_export.errors import ExportError
from vcs_runtime.util.telemetry import refuse_telemetry


def quantize(source: Path, model: Path) -> None:
    """Write the graph `source` with its linear layers in int8 to `model`, the weights to `model` + ".data".

    Products of two activations and the classifier stay as they are. Raises ExportError if a package is
    missing, OSError.
    """
    refuse_telemetry()
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise ExportError(f"int8 needs `vcs-runtime[export]` and `vcs-runtime[cpu]` ({error})") from None
    nodes = onnx.load(source, load_external_data=False).graph.node
    with _quiet():
        quantize_dynamic(
            source,
            model,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            # 7 bits: the sum of two products then fits the 16 bits in which processors without VNNI add, so
            # that every processor computes the same integers. Unsigned weights would too, but take longer.
            weight_type=QuantType.QInt8,
            reduce_range=True,
            nodes_to_exclude=[node.name for node in nodes if "classifier.weight" in node.input],
            use_external_data_format=True,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """The tool advises, through the root logger, to optimise the graph first: the runtime does that later."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
