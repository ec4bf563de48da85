"""Graphs for CUDA, run by ONNX Runtime's own kernels for CPUs.

A CPU lacks two of their operators, which are spelt out here. So the writer of the graphs, the
interpreter in NumPy and ONNX Runtime are three opinions on what an operator means.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort

from support.numpy_onnx import run
from vcs_runtime.inference.batching import batches

FOLDER = "session.model_external_initializers_file_folder_path"

FUNCTIONS = [
    """
    <opset_import: ["": 24], domain: "spelt">
    BiasGelu (x, bias) => (out)
    {
        sum = Add (x, bias)
        wide = Cast <to = 1> (sum)
        gelu = Gelu (wide)
        out = Cast <to = 10> (gelu)
    }""",
    """
    <opset_import: ["": 24], domain: "spelt">
    PackedMultiHeadAttention <num_heads, scale> (query, key, value, bias, places, starts) => (out)
    {
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        first = Constant <value_ints = [0]> ()
        second = Constant <value_ints = [1]> ()
        half = Unsqueeze (query, first)
        q = Cast <to = 1> (half)
        half_k = Unsqueeze (key, first)
        k = Cast <to = 1> (half_k)
        half_v = Unsqueeze (value, first)
        v = Cast <to = 1> (half_v)
        count = Shape <start = 0, end = 1> (query)
        end = Squeeze (count)
        token = Range (zero, end, one)
        column = Unsqueeze (token, second)
        begins = Cast <to = 7> (starts)
        begun = GreaterOrEqual (column, begins)
        begun_count = Cast <to = 7> (begun)
        text = ReduceSum <keepdims = 0> (begun_count, second)
        other = Unsqueeze (text, second)
        same = Equal (other, text)
        sums = Attention <q_num_heads: int = @num_heads, kv_num_heads: int = @num_heads, scale: \
float = @scale> (q, k, v, same)
        flat = Squeeze (sums, first)
        out = Cast <to = 10> (flat)
    }""",
]


def spelt(graph: bytes) -> bytes:
    """Return a graph for CUDA as a CPU can run it."""
    model = onnx.load_model_from_string(graph)
    functions = [onnx.parser.parse_function(text) for text in FUNCTIONS]
    for node in model.graph.node:
        if node.op_type in {function.name for function in functions}:
            node.domain = "spelt"
        if node.op_type == "RMSNormalization":
            # The same, which takes weights in half precision.
            node.op_type = "SimplifiedLayerNormalization"
        for item in node.attribute:
            if item.name == "accuracy_level":
                item.i = (
                    # At level 4 the CPU's kernel gives zeros for scales after a Cast.
                    0
                )
    model.functions.extend(functions)
    model.opset_import[0].version, model.ir_version = 24, 12  # as the functions have it
    model.opset_import.append(onnx.helper.make_opsetid("spelt", 1))
    return model.SerializeToString()


def session(graph: Path) -> ort.InferenceSession:
    """Open a graph for CUDA on the CPU, without any optimisation."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(FOLDER, str(graph.parent))
    return ort.InferenceSession(
        spelt(graph.read_bytes()), options, providers=["CPUExecutionProvider"]
    )


def differences(
    graph: Path, rows: Sequence[Sequence[int]], layout: str, skip: int = 0
) -> tuple[float, float]:
    """Return how far ONNX Runtime is from the interpreter without rounding, and the interpreter
    that rounds.

    Both are root mean squares of the distances between vectors. The largest distance would depend
    on luck: on the one number that a processor rounds worst.
    """
    [batch] = batches(rows, 10_000, layout, skip, mixed=True)
    [got] = session(graph).run(None, batch.inputs)
    exact, rounded = (run(graph, batch.inputs, exact=exact) for exact in (True, False))
    theirs, ours = (
        np.sqrt(np.square(vectors - exact).sum(axis=1).mean()) for vectors in (got, rounded)
    )
    return float(theirs), float(ours)
