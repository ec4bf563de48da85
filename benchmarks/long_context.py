"""NV-Embed-v2 with long texts on a CPU: memory predicted and measured, and vectors beside NumPy.

    python benchmarks/long_context.py [--tokens 512 1024 2048] [--model full tiny one-head] [--targets ort tensorrt]
                                      [--most-gb 6] [--precision fp32] [--no-numpy] [--keep]

`full` is one layer of full width with random weights in the published names and types, `tiny` is the model of the
tests with the published number of positions, 32,768, and `one-head` the same with one head as wide as its 4. Each text is embedded in a process of its own. Before that, this is
predicted: what the process takes once the bundle is open (measured with 16 tokens); attention's scores, float32; and 20
float32 numbers a token for each of the width, most of them in the feed-forward layer and the pooling. Scores take
`heads * tokens^2 * 4` bytes, but for `ort` never more than those of 2,048 tokens; for `tensorrt` these twice, and twice the
mask of `tokens^2` bytes. A length whose prediction is above `--most-gb` is not run. The difference is the largest of a
number of a unit vector from NumPy's forward pass in float64 (`tests/lib/support/numpy_nv_embed.py`), which takes 512
queries of a head at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from decoders import MODELS, NV_EMBED, write_checkpoint
from records import ANY, keep
from sides import measure, peak_mb

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))

from vcs_export.graph.cpu_layouts import SCORES

POSITIONS = 32768
NAMES = {"full": "full width", "tiny": "tiny", "one-head": "tiny, one head"}
LAYOUTS = {"ort": "packed", "tensorrt": "masked"}
HEADS = {"full": 32, "tiny": 4, "one-head": 1}
WIDTHS = {"full": 4096, "tiny": 32, "one-head": 32}


def predicted_mb(model: str, target: str, tokens: int) -> tuple[float, float]:
    """MB of attention's scores, and of all other arrays, for a text."""
    scores = HEADS[model] * min(tokens**2, SCORES if target == "ort" else math.inf) * 4
    if target == "tensorrt":
        scores = 2 * (scores + tokens**2)
    return scores / 2**20, 20 * WIDTHS[model] * tokens * 4 / 2**20


def build(model: str, target: str, precision: str, folder: Path) -> Path:
    from support.tiny_nv_embed import build_tiny_nv_embed_bundle, write_tiny_nv_embed

    checkpoint = folder / model
    if not checkpoint.exists():
        if model == "tiny":
            write_tiny_nv_embed(checkpoint, positions=POSITIONS)
        elif model == "one-head":
            write_tiny_nv_embed(checkpoint, positions=POSITIONS, heads=1, groups=1, head_dim=32)
        else:
            checkpoint.mkdir()
            write_checkpoint(checkpoint, MODELS[NV_EMBED], {"layers": 1, "vocabulary": None, "stored": None})
    return build_tiny_nv_embed_bundle(
        folder / f"{model}-{target}", checkpoint=checkpoint, target_runtime=target, precision=precision
    )


def ids_of(tokens: int) -> list[int]:
    return [1, *np.random.default_rng(tokens).integers(3, 60, tokens - 2).tolist(), 2]


def run(work: Mapping[str, Any]) -> dict[str, Any]:
    """The vector of a text by the bundle or by NumPy, into a file; seconds and peak memory."""
    ids = ids_of(work["tokens"])
    started = time.perf_counter()
    if work["side"] == "numpy":
        from support.numpy_nv_embed import embed

        vector = embed(Path(work["checkpoint"]), ids)
    else:
        from vcs_runtime.bundle.opening import open_bundle
        from vcs_runtime.inference.batching import batches
        from vcs_runtime.inference.device import choose_device
        from vcs_runtime.inference.onnx_session import open_session, run_session

        bundle = open_bundle(work["bundle"])
        spec = bundle.manifest.embedder
        assert spec
        session = open_session(
            bundle.path(spec.model), choose_device("cpu"), half=spec.precision in ("fp16", "fp8")
        )
        started = time.perf_counter()
        [batch] = batches([ids], 2048, spec.layout)
        [vectors] = run_session(session, [session.get_outputs()[0].name], batch.inputs)
        vector = vectors[0]
    np.save(work["vector"], vector)
    return {"seconds": time.perf_counter() - started, "peak": peak_mb()}


def compare(model: str, target: str, lengths: list[int], arguments: argparse.Namespace, folder: Path) -> None:
    bundle = build(model, target, arguments.precision, folder)
    given = {"bundle": str(bundle), "checkpoint": str(folder / model), "vector": str(folder / "vector.npy")}
    opened = measure(__file__, folder, side="bundle", tokens=16, **given)["peak"]
    print(f"\n{model}, {target}, {arguments.precision}: {opened:,.0f} MB once it is open")
    print("tokens | scores, MB | peak predicted, MB | measured, MB | seconds | largest difference from NumPy")
    for tokens in lengths:
        scores, others = predicted_mb(model, target, tokens)
        peak = opened + scores + others
        told = f"{tokens:,} | {scores:,.0f} | {peak:,.0f}"
        if peak > 1000 * arguments.most_gb:
            print(f"{told} | not run", flush=True)
            continue
        found = measure(__file__, folder, side="bundle", tokens=tokens, **given)
        vector = np.load(given["vector"])
        difference = ""
        if not arguments.no_numpy:
            measure(__file__, folder, side="numpy", tokens=tokens, **given)
            difference = f"{np.abs(vector - np.load(given['vector'])).max():.1e}"
        print(f"{told} | {found['peak']:,.0f} | {found['seconds']:.1f} | {difference}", flush=True)
        if arguments.keep:
            cells = {
                "scores without blocks": f"{HEADS[model] * tokens**2 * 4 / 2**20:,.0f} MB",
                "predicted": f"{peak:,.0f} MB", "measured": f"{found['peak']:,.0f} MB", "difference": difference,
            }  # fmt: skip
            name = f"{NAMES[model]}, `{LAYOUTS[target]}`, {arguments.precision}"
            keep(
                "long_context",
                [{"head": "model and graph", "workload": f"{name}: {tokens:,} tokens", "cells": cells}],
                place=ANY,
            )


def main() -> None:
    if "--child" in sys.argv:
        print(json.dumps(run(json.loads(Path(sys.argv[-1]).read_text("utf-8")))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 32768])
    parser.add_argument("--model", nargs="+", default=["full", "tiny"], choices=HEADS)
    parser.add_argument("--targets", nargs="+", default=["ort", "tensorrt"], choices=["ort", "tensorrt"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "fp16"])
    parser.add_argument("--most-gb", type=float, default=6.0)
    parser.add_argument("--no-numpy", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the figures for the manual")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="long-context-") as work:
        for model in arguments.model:
            for target in arguments.targets:
                compare(model, target, arguments.tokens, arguments, Path(work))


if __name__ == "__main__":
    main()
