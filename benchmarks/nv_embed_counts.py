"""Multiply-adds of NV-Embed-v2 for a text, as published and as exported; and the time of both, on request.

    python benchmarks/nv_embed_counts.py [--tokens 20 60 600] [--keep] [--measure] [--layers 4] [--rounds 3]

Counted are products of matrices (linear layers and attention), in thousands of millions, by the settings of
`models/nv-embed-v2.toml`. The export folds the latents, which are constants, into the matrices beside them,
and applies the last linear layer once a text (`export/vcs_export/graph/latent.py`); the decoder is the same.

`--measure` writes a checkpoint of full width with random weights and `--layers` layers (8 GB for 4) into the
temporary folder, and two graphs of it, float32: ours, and one with the pooling as published. Each text is
embedded alone on the CPU; the table shows the least time of the rounds. It also shows how far the vectors
of the two graphs differ.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from records import ANY, keep

from vcs_export.checkpoint.decoder import DecoderConfig, decoder_shapes
from vcs_export.checkpoint.nv_embed import (
    LATENT_PREFIX,
    LatentConfig,
    NvEmbedCheckpoint,
    latent_shapes,
    open_nv_embed,
)
from vcs_export.checkpoint.recipe import NV_EMBED, NvEmbedRecipe, load_recipe
from vcs_export.graph.attention_layouts import Packed
from vcs_export.graph.decoder import decoder, layer_norm
from vcs_export.graph.decoder_model import OPSETS, OUTPUT, write_decoder_model
from vcs_export.graph.nv_embed import nv_embed_model
from vcs_export.graph.pooling import unit_length
from vcs_export.graph.streamed import FLOAT, DataFile, StreamedGraph
from vcs_runtime.inference.batching import batches

WIDER = 4  # the gated layer against the hidden size


def settings() -> tuple[DecoderConfig, LatentConfig]:
    recipe = load_recipe(NV_EMBED, NvEmbedRecipe)
    return DecoderConfig(**recipe.config, causal=False), LatentConfig(**recipe.latent)  # type: ignore[arg-type]


def counts(config: DecoderConfig, latent: LatentConfig, tokens: int) -> dict[str, tuple[int, int]]:
    """Multiply-adds of each part for a text of `tokens` tokens: as published, as exported."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    queries, keys = heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer = hidden * (2 * queries + 2 * keys + 3 * config.intermediate_size)
    layers = config.num_hidden_layers * tokens * (layer + 2 * tokens * queries)
    joined, latents = latent.num_cross_heads * latent.cross_dim_head, latent.num_latents_value
    into_latents = 2 * latents * joined * hidden  # keys and values of the latents, for every text
    cross = tokens * (2 * hidden * joined + 2 * latents * joined)
    folded = tokens * 2 * hidden * latent.num_cross_heads * latents
    first, last = hidden * 2 * WIDER * hidden, WIDER * hidden * hidden
    return {
        "decoder": (layers, layers),
        "latents' keys and values": (into_latents, 0),
        "attention to latents": (cross, folded),
        "gated layer": (tokens * (first + last), tokens * first + last),
    }


def table(lengths: list[int]) -> list[dict[str, Any]]:
    """Print multiply-adds by part; return the rows of the manual."""
    config, latent = settings()
    print(f"{'':26}" + "".join(f"{f'{tokens} tokens':>24}" for tokens in lengths))
    columns = [counts(config, latent, tokens) for tokens in lengths]
    for part in columns[0]:
        print(f"{part:26}" + "".join(f"{c[part][0] / 1e9:12.1f}{c[part][1] / 1e9:12.1f}" for c in columns))
    sums = [[sum(part[side] for part in c.values()) for side in (0, 1)] for c in columns]
    print(f"{'all':26}" + "".join(f"{before / 1e9:12.1f}{after / 1e9:12.1f}" for before, after in sums))
    print(f"{'saved':26}" + "".join(f"{1 - after / before:24.1%}" for before, after in sums))
    return [
        {
            "head": "tokens", "workload": f"{tokens}",
            "cells": {
                "as published": f"{before / 1e9:.1f}", "exported": f"{after / 1e9:.1f}", "saved": f"{100 * (1 - after / before):.0f} %",
            },
        }
        for tokens, (before, after) in zip(lengths, sums, strict=True)
    ]  # fmt: skip


def safetensors_start(shapes: Mapping[str, tuple[int, ...]], kind: str) -> bytes:
    """What a safetensors file begins with, before its tensors in this order; kind is "F16", "BF16" or "F32"."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        size = int(kind.lstrip("BF")) // 8 * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    return len(start).to_bytes(8, "little") + start


def write_checkpoint(folder: Path, layers: int) -> NvEmbedCheckpoint:
    """Random weights of full width; one block of numbers, repeated: speed does not depend on the values."""
    config, latent = settings()
    text: dict[str, Any] = {
        name: getattr(config, name)
        for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
                     "rms_norm_eps", "rope_theta")
    }  # fmt: skip
    text |= {"model_type": "bidir_mistral", "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": layers}
    text |= {"vocab_size": 64, "max_position_embeddings": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "nvembed", "text_config": text}))
    kept = replace(config, num_hidden_layers=layers, vocab_size=64)
    shapes = decoder_shapes(kept, "embedding_model.")
    shapes |= latent_shapes(latent)
    block = np.random.default_rng(0).standard_normal((1 << 22) + 1).astype(np.float32)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(safetensors_start(shapes, "F32"))
        for name, shape in shapes.items():
            spread = 1.0 if name.endswith("latents") else 0.02
            values = block * np.float32(spread) + np.float32(len(shape) == 1 and name.endswith("weight"))
            left = math.prod(shape)
            while left:
                file.write(values[:left].tobytes())
                left -= min(left, values.size)
    return open_nv_embed(folder)


def write_as_published(opened: NvEmbedCheckpoint, model: Path) -> None:
    """The same graph with the pooling as its authors wrote it: nothing folded, all per token."""
    latent, tensors = opened.latent, opened.tensors
    cross, gated = (f"{LATENT_PREFIX}cross_attend_blocks.{i}." for i in (0, 1))
    heads, size, hidden = latent.num_cross_heads, latent.cross_dim_head, latent.hidden_dim
    with DataFile(model.with_name(f"{model.name}.data")) as data:
        graph = StreamedGraph(OPSETS["packed"], "fp32", data, link=True)
        layout = Packed(graph, opened.decoder)
        states = decoder(layout, tensors, "embedding_model.")
        query = graph.linear(
            layer_norm(graph, tensors, f"{cross}norm", states), tensors[f"{cross}fn.to_q.weight"]
        )
        latents = graph.stored(tensors[f"{LATENT_PREFIX}latents"], ir.DataType.FLOAT)
        # Multiplied by one that is only known when it runs, or they would be computed once, when it is opened.
        length = graph.op("Cast", graph.op("Shape", layout.ids), to=int(ir.DataType.FLOAT))
        latents = graph.op("Mul", latents, graph.op("Div", length, length))
        context = layer_norm(graph, tensors, f"{cross}norm_context", latents)
        both = graph.linear(context, tensors[f"{cross}fn.to_kv.weight"])
        key, value = (
            graph.op(
                "Slice", both, graph.ints(i * heads * size), graph.ints((i + 1) * heads * size), graph.ints(1)
            )
            for i in (0, 1)
        )
        q, k, v = (
            graph.op("Transpose", graph.op("Reshape", x, graph.ints(-1, heads, size)), perm=perm)
            for x, perm in ((query, [1, 0, 2]), (key, [1, 2, 0]), (value, [1, 0, 2]))
        )
        scores = graph.op("Div", graph.op("MatMul", q, k), graph.scalar(math.sqrt(size)))
        seen = graph.op(
            "Transpose", graph.op("MatMul", graph.op("Softmax", scores, axis=-1), v), perm=[1, 0, 2]
        )
        joined = graph.op("Reshape", seen, graph.ints(-1, heads * size))
        y = graph.op("Add", graph.linear(joined, tensors[f"{cross}fn.to_out.weight"]), states)
        inner = graph.linear(
            layer_norm(graph, tensors, f"{gated}norm", y),
            tensors[f"{gated}fn.net.0.weight"],
            tensors[f"{gated}fn.net.0.bias"],
        )
        wide = WIDER * hidden
        left = graph.op("Slice", inner, graph.ints(0), graph.ints(wide), graph.ints(1))
        right = graph.op("Slice", inner, graph.ints(wide), graph.ints(2 * wide), graph.ints(1))
        product = graph.op("Mul", left, graph.op("Gelu", right))
        last = graph.linear(product, tensors[f"{gated}fn.net.2.weight"], tensors[f"{gated}fn.net.2.bias"])
        mean = layout.mean(graph.op("Add", last, y), FLOAT)
        graph.save(unit_length(graph, mean), OUTPUT, ("batch", hidden), model)


def measure(lengths: list[int], layers: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="nv-embed-counts-") as work:
        folder = Path(work)
        opened = write_checkpoint(folder, layers)
        write_decoder_model(nv_embed_model(opened), folder / "ours.onnx", "fp32", "packed", link=True)
        write_as_published(opened, folder / "published.onnx")
        found: dict[str, list[tuple[float, Any]]] = {}
        for name in ("published", "ours"):
            options = ort.SessionOptions()
            # Weights stay where they are mapped: packed anew, they would be in memory twice.
            options.add_session_config_entry("session.disable_prepacking", "1")
            session = ort.InferenceSession(
                folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"]
            )
            for tokens in lengths:
                ids = np.random.default_rng(tokens).integers(3, 64, tokens).tolist()
                [batch] = batches([ids], 1, "packed")
                times = []
                for _ in range(rounds):
                    start = time.perf_counter()
                    [vectors] = session.run(None, batch.inputs)
                    times.append(time.perf_counter() - start)
                found.setdefault(name, []).append((min(times), vectors))
            del session
        print(f"\nseconds a text, {layers} layers of full width")
        for i, tokens in enumerate(lengths):
            (before, first), (after, second) = found["published"][i], found["ours"][i]
            print(
                f"{tokens:6} tokens: {before:8.2f} as published {after:8.2f} ours, {before / after:.2f} x; "
                f"vectors differ by {np.abs(first - second).max():.1e}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[20, 60, 600])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rows = table(arguments.tokens)
    if arguments.keep:
        print(keep("nv_embed_counts", rows, place=ANY))
    if arguments.measure:
        measure(arguments.tokens, arguments.layers, arguments.rounds)


if __name__ == "__main__":
    main()
