"""One random model as a graph of each layout: attention, a linear layer, a mean, unit length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from support.checkpoints.bert import VOCABULARY, tiny_tokenizer
from vcs_export.graph.builder import GraphBuilder
from vcs_export.write import BundleInfo, BundleWriter
from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS, POOL_GROUP
from vcs_runtime.bundle.manifest import CudaGraph, EmbedderSpec

HIDDEN = 48
FLOAT = int(ir.DataType.FLOAT)


def _weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"table": (len(VOCABULARY), HIDDEN), **dict.fromkeys("qkvo", (HIDDEN, HIDDEN))}
    return {
        name: (
            (rng.standard_normal(shape) * (1 if name == "table" else 1.5 / HIDDEN**0.5)).astype(
                np.float32
            )
        )
        for name, shape in shapes.items()
    }


def _write(layout: str, model: Path) -> None:
    graph = GraphBuilder(17)
    op = graph.op
    shapes = {
        "input_ids": ("tokens",) if layout in ("packed", "varlen") else ("batch", "tokens"),
        "attention_mask": ("batch", "tokens"),
        "gather": ("batch", "width"),
        "scatter": ("tokens",),
        "lengths": ("batch",),
        "skip": ("batch",),
        "positions": ("tokens",),
        "starts": ("starts",),
        "places": ("batch", "width"),
        "pool": ("groups", POOL_GROUP),
        "owners": ("groups",),
        "counts": ("batch",),
    }
    inputs = {name: graph.input(name, shapes[name]) for name in EMBEDDER_INPUTS[layout]}
    weights = {name: graph.weight(name, array) for name, array in _weights().items()}
    tokens = op("Gather", weights["table"], inputs["input_ids"])
    if layout == "varlen":
        _finish(graph, _varlen(graph, inputs, weights, tokens), model)
        return
    if layout == "packed":
        width = op("Shape", inputs["gather"], start=1, end=2)
        places = op(
            "Range", graph.int_scalar(0), op("Squeeze", width, graph.ints(0)), graph.int_scalar(1)
        )
        lengths, skip = (
            op("Unsqueeze", inputs[name], graph.ints(1)) for name in ("lengths", "skip")
        )
        real = op("Cast", op("Less", places, lengths), to=FLOAT)
        pooled = op("Mul", real, op("Cast", op("GreaterOrEqual", places, skip), to=FLOAT))
        pad = lambda x: op("Gather", x, inputs["gather"])  # noqa: E731
        unpad = lambda x: op("Gather", op("Reshape", x, graph.ints(-1, HIDDEN)), inputs["scatter"])  # noqa: E731
    else:
        real = op("Cast", inputs["attention_mask"], to=FLOAT)
        pooled = real
        pad = unpad = lambda x: x
    query, key, value = (pad(op("MatMul", tokens, weights[name])) for name in "qkv")
    scores = op(
        "Div", op("MatMul", query, op("Transpose", key, perm=[0, 2, 1])), graph.scalar(HIDDEN**0.5)
    )
    hidden = op("Mul", op("Sub", real, graph.scalar(1.0)), graph.scalar(1e30))
    scores = op("Softmax", op("Add", scores, op("Unsqueeze", hidden, graph.ints(1))), axis=-1)
    tokens = op("Add", tokens, unpad(op("MatMul", scores, value)))
    tokens = pad(op("Add", tokens, op("Tanh", op("MatMul", tokens, weights["o"]))))
    # Whatever lies in the padded places is multiplied by zero. A product, as in `graph.pooling`:
    # ONNX Runtime's ReduceSum over the middle axis adds in another order when there are more rows.
    summed = op(
        "Squeeze", op("MatMul", op("Unsqueeze", pooled, graph.ints(1)), tokens), graph.ints(1)
    )
    _finish(graph, op("Div", summed, op("ReduceSum", pooled, graph.ints(1), keepdims=1)), model)


def _varlen(
    graph: GraphBuilder, inputs: dict[str, ir.Value], weights: dict[str, ir.Value], tokens: ir.Value
) -> ir.Value:
    """The mean of each text, in the layout for CUDA: tokens see those of the same text."""
    op = graph.op

    def column(x: ir.Value) -> ir.Value:
        return op("Unsqueeze", x, graph.ints(1))

    query, key, value = (op("MatMul", tokens, weights[name]) for name in "qkv")
    scores = op(
        "Div", op("MatMul", query, op("Transpose", key, perm=[1, 0])), graph.scalar(HIDDEN**0.5)
    )
    # A token's row less its position is the first row of its text.
    count = op("Squeeze", op("Shape", inputs["input_ids"]), graph.ints(0))
    first = op(
        "Sub", op("Range", graph.int_scalar(0), count, graph.int_scalar(1)), inputs["positions"]
    )
    strange = op("Not", op("Equal", column(first), first))
    hidden = op("Mul", op("Cast", strange, to=FLOAT), graph.scalar(-1e30))
    tokens = op(
        "Add", tokens, op("MatMul", op("Softmax", op("Add", scores, hidden), axis=-1), value)
    )
    tokens = op("Add", tokens, op("Tanh", op("MatMul", tokens, weights["o"])))
    weight = op(
        "Unsqueeze",
        op("Cast", op("GreaterOrEqual", inputs["pool"], graph.int_scalar(0)), to=FLOAT),
        graph.ints(1),
    )
    sums = op("Squeeze", op("MatMul", weight, op("Gather", tokens, inputs["pool"])), graph.ints(1))
    batch = op("Squeeze", op("Shape", inputs["counts"]), graph.ints(0))
    texts = op("Range", graph.int_scalar(0), batch, graph.int_scalar(1))
    own = op("Cast", op("Equal", column(texts), inputs["owners"]), to=FLOAT)
    return op("Div", op("MatMul", own, sums), column(op("Cast", inputs["counts"], to=FLOAT)))


def _finish(graph: GraphBuilder, mean: ir.Value, model: Path) -> None:
    op = graph.op
    square = op("ReduceSum", op("Mul", mean, mean), graph.ints(1), keepdims=1)
    unit = op("Div", mean, op("Sqrt", square))
    # Both graphs of a bundle have the same weights, as in what is exported.
    graph.save(unit, "embedding", ("batch", HIDDEN), model, model.with_name("model.onnx.data"))


def build_layout_bundle(target: Path, layout: str, *, cuda: str | None = None, **spec: Any) -> Path:
    """Build the bundle `target` of that model in a layout; `cuda` is that of a second graph."""
    with BundleWriter(target, BundleInfo(f"tiny-{layout}", "CC0-1.0", "random numbers")) as bundle:
        tiny_tokenizer().save(str(bundle.file("embedder/tokenizer.json")))
        _write(layout, bundle.file("embedder/model.onnx"))
        if cuda:
            _write(cuda, bundle.file("embedder/model.cuda.onnx"))
            spec["cuda"] = CudaGraph("embedder/model.cuda.onnx", cuda)
        settings = {"max_tokens": 32, "long_text": "window_mean", **spec}
        return bundle.commit(
            embedder=EmbedderSpec(
                name=f"tiny-{layout}",
                model="embedder/model.onnx",
                weights=("embedder/model.onnx.data",),
                tokenizer="embedder/tokenizer.json",
                dimension=HIDDEN,
                precision="fp32",
                layout=layout,
                **settings,
            )
        )


def oracle(ids: list[int], skip: int = 0) -> np.ndarray[Any, Any]:
    """The model in NumPy, float64: the unit vector `(HIDDEN,)` of one sequence of token ids."""
    w = {name: array.astype(np.float64) for name, array in _weights().items()}
    x = w["table"][ids]
    scores = (x @ w["q"]) @ (x @ w["k"]).T / HIDDEN**0.5
    attention = np.exp(scores - scores.max(axis=1, keepdims=True))
    x = x + attention / attention.sum(axis=1, keepdims=True) @ (x @ w["v"])
    mean = (x + np.tanh(x @ w["o"]))[skip:].mean(axis=0)
    return mean / np.linalg.norm(mean)
