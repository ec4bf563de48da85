"""Static word vectors as an ONNX graph: token ids in, one unit vector a text out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.pooling import mean_pooling, unit_length
from vcs_export.graph.transformer import INPUTS, OPSET

OUTPUT = "embedding"


def write_static(table: NDArray[np.float16], model: Path, weights: Path) -> None:
    """Write the graph, and its table beside it.

    The inputs `input_ids` and `attention_mask` are int64 `(batch, tokens)`. The output `embedding` is float32
    `(batch, dimension)`: the mean of the rows where the mask is 1, scaled to unit length.
    """
    graph = GraphBuilder(OPSET)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    rows = graph.op("Gather", graph.weight("table", table), ids)
    visible = graph.op("Cast", mask, to=graph.float_type)
    mean = mean_pooling(graph, graph.op("Cast", rows, to=int(ir.DataType.FLOAT)), visible)
    graph.save(unit_length(graph, mean), OUTPUT, ("batch", table.shape[1]), model, weights)
