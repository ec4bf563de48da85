"""The project's own boundary model: trained updates (`models/`) on top of an encoder's checkpoint.

The updates hold only what training changed, so they fit into the repository; the rest comes from the
checkpoint that they were trained on. Merged, they are an ordinary encoder with one logit a token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from vcs_export.checkpoint.bert import BertCheckpoint, BertConfig, open_bert
from vcs_export.checkpoint.recipe import BoundaryRecipe
from vcs_export.checkpoint.transformer import (
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    bare_tokenizer,
)
from vcs_export.errors import CheckpointError, os_reason
from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.transformer import (
    INPUTS,
    OPSET,
    attention,
    attention_bias,
    embeddings,
    feed_forward,
)
from vcs_export.write import BundleWriter
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.layouts import WORD_SHAPES
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec, SegmenterSpec

CAPITALS_INPUT = "capitals"
OUTPUT = "logits"
MODEL_FILE = "segmenter/model.onnx"
WEIGHTS_FILE = "segmenter/model.onnx.data"
TOKENIZER_FILE = "segmenter/tokenizer.json"


@dataclass(frozen=True)
class Updates:
    """Trained updates: `layers` of the checkpoint are used; `tensors`, float32, by these names:

    NAME.down `(rank, in)` and NAME.up `(out, rank)`, whose product is added to the checkpoint's NAME.weight
    `(out, in)`; NAME.bias, and NAME.weight of a normalisation, in place of the checkpoint's;
    capitals.weight `(4, hidden)`: a vector for each way to write a word (`word_features`);
    classifier.weight `(1, hidden)`, classifier.bias `(1,)`.
    """

    path: Path
    layers: int
    tensors: Mapping[str, NDArray[np.float32]]


def build_boundary_bundle(
    checkpoint: Path, recipe: BoundaryRecipe, target: Path, *, licence: str = "Apache-2.0"
) -> Path:
    """Build the bundle `target`, which holds nothing but the boundary model; returns `target`.

    Raises CheckpointError, BundleExistsError, ExportError.
    """
    tokenizer = bare_tokenizer(checkpoint / TOKENIZER)
    with open_bert(checkpoint) as opened, BundleWriter(target) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(tokenizer)
        return bundle.commit(
            name=recipe.name,
            licence=licence,
            source=f"{recipe.updates.name} on {checkpoint.name}",
            segmenter=SegmenterSpec(model=add_boundary(bundle, opened, recipe, TOKENIZER_FILE)),
        )


def add_boundary(
    bundle: BundleWriter, checkpoint: BertCheckpoint, recipe: BoundaryRecipe, tokenizer: str
) -> LearnedSegmenterSpec:
    """Write the model into a bundle that is being built; `tokenizer` is the checkpoint's, in that bundle.

    Raises CheckpointError, OSError.
    """
    updates = read_updates(recipe.updates, checkpoint.folder)
    write_boundary(checkpoint, updates, bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE))
    return LearnedSegmenterSpec(
        name=recipe.name,
        kind="words",
        model=MODEL_FILE,
        weights=(WEIGHTS_FILE,),
        tokenizer=tokenizer,
        special_tokens=_frame(checkpoint.folder / TOKENIZER),
        max_tokens=recipe.max_tokens,
        stride=recipe.stride,
        threshold=recipe.threshold,
        precision="fp32",
    )


def _frame(tokenizer: Path) -> tuple[int, int]:
    """The tokens that BERT puts before and after a text."""
    words = Tokenizer.from_file(str(tokenizer))
    first, last = words.token_to_id("[CLS]"), words.token_to_id("[SEP]")
    if first is None or last is None:
        raise CheckpointError(f"{tokenizer}: [CLS] or [SEP] is missing")
    return first, last


def read_updates(path: Path, checkpoint: Path) -> Updates:
    """Read the updates in `path`, a safetensors file, for the checkpoint in the folder `checkpoint`.

    Raises CheckpointError: damaged, or trained on another checkpoint.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            facts = json.loads((file.metadata() or {})["vcs"])
            tensors = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
            layers, base = int(facts["layers"]), str(facts["base"])
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {os_reason(error)}") from None
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: damaged, or no updates of a boundary model: {error}") from None
    if (found := sha256_of(checkpoint / WEIGHTS)) != base:
        raise CheckpointError(
            f"{path}: trained on the weights {base[:8]}, not on {found[:8]} in {checkpoint}"
        )
    return Updates(path, layers, tensors)


def write_boundary(checkpoint: BertCheckpoint, updates: Updates, model: Path, weights: Path) -> None:
    """Write the boundary model's graph to `model` and its weights to `weights`, in the same folder.

    Inputs `input_ids`, `attention_mask`, `capitals`: int64 `(batch, tokens)`. Output `logits`: float32
    `(batch, tokens, 1)`. Raises CheckpointError for updates that do not fit the checkpoint; OSError.
    """
    graph = GraphBuilder(OPSET)
    merged = _Merged(checkpoint, updates)
    ids, mask, capitals = (graph.input(name, ("batch", "tokens")) for name in (*INPUTS, CAPITALS_INPUT))
    visible = graph.op("Cast", mask, to=int(ir.DataType.FLOAT))
    bias = attention_bias(graph, graph.op("Unsqueeze", visible, graph.ints(1, 2)))
    table = graph.weight(
        "capitals.weight", merged.update("capitals.weight", (WORD_SHAPES, merged.config.hidden_size))
    )
    x = graph.op("Add", embeddings(graph, merged, ids), graph.op("Gather", table, capitals))
    for layer in range(updates.layers):
        x = attention(graph, merged, f"encoder.layer.{layer}.", x, bias)
        x = feed_forward(graph, merged, f"encoder.layer.{layer}.", x)
    weight = merged.update("classifier.weight", (1, merged.config.hidden_size))
    logits = graph.linear("classifier", x, weight, merged.update("classifier.bias", (1,)))
    graph.save(logits, OUTPUT, ("batch", "tokens", 1), model, weights)


class _Merged(Checkpoint[BertConfig]):
    """A checkpoint whose tensors have the updates in them."""

    def __init__(self, checkpoint: BertCheckpoint, updates: Updates) -> None:
        if not 1 <= updates.layers <= checkpoint.config.num_hidden_layers:
            raise CheckpointError(f"{updates.path}: {updates.layers} layers, the checkpoint has fewer")
        self.config = checkpoint.config
        self._checkpoint = checkpoint
        self._updates = updates

    def tensor(self, name: str) -> NDArray[np.float32]:
        base = self._checkpoint.tensor(name)
        if name in self._updates.tensors:
            return self.update(name, base.shape)
        stem = name.removesuffix(".weight")
        if stem == name or f"{stem}.down" not in self._updates.tensors:
            return base
        rank = len(self._updates.tensors[f"{stem}.down"])
        up = self.update(f"{stem}.up", (base.shape[0], rank))
        down = self.update(f"{stem}.down", (rank, base.shape[1]))
        merged: NDArray[np.float32] = base + up @ down
        return merged

    def update(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """A tensor of the updates, checked."""
        found = self._updates.tensors.get(name)
        if found is None or found.shape != shape:
            have = "is missing" if found is None else f"has the shape {found.shape}"
            raise CheckpointError(f"{self._updates.path}: the tensor {name} {have}, expected {shape}")
        return found
