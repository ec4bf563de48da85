"""Graphs for CUDA, run by ONNX Runtime's own kernels for CPUs.

A CPU lacks three of their operators, which are spelt out here. So the writer of the graphs, the interpreter in NumPy and
ONNX Runtime are three opinions on what an operator means.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from support.numpy_onnx import run
from vcs_runtime.inference import device as device_module
from vcs_runtime.inference import session as session_module
from vcs_runtime.inference import tensorrt
from vcs_runtime.inference.batching import TOKEN_BUDGET, batches
from vcs_runtime.inference.device import CUDA, Device
from vcs_runtime.inference.token_vectors import shown_graph

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
        sums = Attention <q_num_heads: int = @num_heads, kv_num_heads: int = @num_heads, scale: float = @scale> (q, k, v, same)
        flat = Squeeze (sums, first)
        out = Cast <to = 10> (flat)
    }""",
    """
    <opset_import: ["": 24], domain: "spelt">
    GemmFloat8 <transB, dtype> (a, b, bias, scale_a, scale_b) => (out)
    {
        left = Cast <to = 1> (a)
        right = Cast <to = 1> (b)
        product = Gemm <transB: int = @transB> (left, right)
        scaled = Mul (product, scale_a)
        both = Mul (scaled, scale_b)
        out = Cast <to: int = @dtype> (both)
    }""",
]  # fmt: skip


def session(graph: Path, shown: Sequence[str] = ()) -> ort.InferenceSession:
    """Open a graph for CUDA on the CPU, with further outputs."""
    model = onnx.load_model_from_string(shown_graph(graph, shown))
    functions = [onnx.parser.parse_function(text) for text in FUNCTIONS]
    for node in model.graph.node:
        if node.op_type in {function.name for function in functions}:
            node.domain = "spelt"
        if node.op_type == "RMSNormalization":
            node.op_type = "SimplifiedLayerNormalization"  # the same, which takes weights in half precision
        for item in node.attribute:
            if item.name == "accuracy_level":
                item.i = (
                    0  # at level 4 the CPU's kernel gives zeros for scales behind a Cast; CUDA has no levels
                )
    if any(node.domain == "spelt" for node in model.graph.node):
        model.functions.extend(functions)
        model.opset_import[0].version, model.ir_version = 24, 12  # as the functions have it
        model.opset_import.append(onnx.helper.make_opsetid("spelt", 1))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(graph.parent)
    )
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def differences(
    graph: Path, rows: Sequence[Sequence[int]], layout: str, skip: int = 0
) -> tuple[float, float]:
    """Return how far ONNX Runtime is from the interpreter without rounding, and the interpreter that rounds."""
    [batch] = batches(rows, 10_000, layout, skip, mixed=True)
    [got] = session(graph).run(None, batch.inputs)
    exact, rounded = (run(graph, batch.inputs, exact=exact) for exact in (True, False))
    return float(np.abs(got - exact).max()), float(np.abs(rounded - exact).max())


def run_on_cpu(monkeypatch: pytest.MonkeyPatch, tokens: int = 2048) -> None:
    """Let `cuda:0` run graphs for CUDA on the CPU, in batches of so many tokens."""

    def choose(device: str, gpu_memory_gb: float | None = None) -> Device:
        precision = "fp32" if device.endswith(":fp32") else ""
        return (
            Device("ort-cuda", CUDA, "named", memory=None, precision=precision)
            if "cuda" in device
            else real(device)
        )

    real = device_module.choose_device
    monkeypatch.setattr(tensorrt, "choose_device", choose)
    monkeypatch.setattr(session_module, "open_session", lambda model, *_, shown, **__: session(model, shown))
    monkeypatch.setitem(TOKEN_BUDGET, "ort-cuda", tokens)
