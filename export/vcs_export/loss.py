"""What an embedder's graph loses by quantisation, measured by running it beside an unquantised one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcs_export.errors import ExportError
from vcs_runtime.bundle import EmbedderSpec, Loss
from vcs_runtime.packing import batches
from vcs_runtime.tokenizer import load_tokenizer


def demo_texts() -> list[str]:
    """The descriptions of `vcs-runtime demo`: what is measured on unless a user brings texts."""
    data = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    return [data["reference"], *(version["text"] for version in data["versions"])]


def embedding_loss(exact: Path, folder: Path, spec: EmbedderSpec, texts: Sequence[str]) -> Loss:
    """How far the vectors of the embedder `spec` in `folder` are from those of the graph `exact`.

    exact   an unquantised graph with the same inputs, its weights beside it
    texts   each is embedded alone, cut at the model's longest input

    Raises ExportError if a vector is not finite; DeviceError, BundleError from the runtime.
    """
    tokenizer = load_tokenizer(folder / spec.tokenizer)
    first, last = spec.frame or ((), ())
    room = spec.max_tokens - len(first) - len(last)
    rows = [
        [*first, *encoding.ids[:room], *last]
        for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)
    ]
    wanted, got = (_vectors(model, spec, rows) for model in (exact, folder / spec.model))
    cosines = np.sum(wanted * got, axis=1)
    if not np.isfinite(cosines).all():
        raise ExportError(f"{spec.precision} returned NaN or infinity for a text")
    return Loss(len(rows), float(cosines.mean()), float(cosines.min()))


def _vectors(model: Path, spec: EmbedderSpec, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """The vectors of token ids, one at a time, on the CPU."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    # A CPU widens half-precision weights to float32. Optimising would do so with all of them in advance, and
    # the usual order with most of them before the first is used: 29 and 17 GB of memory for NV-Embed-v2, and
    # 1 GB so.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.enable_cpu_mem_arena = False
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    vectors = np.empty((len(rows), spec.dimension))
    for batch in batches(rows, 1, spec.layout):  # a budget of one token: each text is a batch of its own
        vectors[batch.rows] = session.run(None, batch.inputs)[0]
    return vectors
