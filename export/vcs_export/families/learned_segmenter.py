"""The project's learned segmenter: trained updates (`models/`) to an encoder's checkpoint.

The updates hold only the tensors that training changed, so that they fit into the repository. All
other tensors come from the checkpoint that they were trained on. Merged, the two are an ordinary
encoder with one logit per token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vcs_export.checkpoint.encoders import EncoderCheckpoint, EncoderConfig
from vcs_export.checkpoint.recipe import SegmenterRecipe
from vcs_export.checkpoint.safetensors_reader import WEIGHTS
from vcs_export.checkpoint.transformer import TOKENIZER, Checkpoint, bert_special_tokens
from vcs_export.errors import CheckpointError, os_reason
from vcs_export.families.build import SEGMENTER_FILES, TOKENIZER_FILE, WEIGHTS_FILE
from vcs_export.graph.builder import GraphBuilder, StoredWeights
from vcs_export.graph.cuda_encoder import CudaEncoder, cuda_graph
from vcs_export.graph.transformer import OPSET, attention_bias, embeddings, layers
from vcs_export.write import BundleWriter
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.layouts import SEGMENTER_INPUTS, WORD_SHAPES
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec

OUTPUT = "logits"
F = TypeVar("F")


class _Facts(msgspec.Struct, frozen=True):
    base: str  # sha256 of the checkpoint's weights
    layers: int  # number of the checkpoint's layers that are used, from the bottom


class Trained(dict[str, NDArray[Any]], Generic[F]):
    """Tensors that the project trained, by name, and the facts in the header of their file.

    Raises CheckpointError for an unreadable file, and for a missing tensor.
    """

    def __init__(self, path: Path, facts: type[F], otherwise: str) -> None:
        self.path = path
        try:
            with safe_open(path, framework="numpy") as file:
                self.facts = msgspec.json.decode((file.metadata() or {})["vcs"], type=facts)
                names = file.keys()
                super().__init__((name, file.get_tensor(name)) for name in names)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {os_reason(error)}") from None
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path}: damaged, or {otherwise}: {error}") from None

    def __missing__(self, name: str) -> NDArray[Any]:
        raise CheckpointError(f"{self.path}: the tensor {name} is missing")


def add_learned_segmenter(
    bundle: BundleWriter,
    checkpoint: EncoderCheckpoint,
    recipe: SegmenterRecipe,
    shared: StoredWeights,
) -> LearnedSegmenterSpec:
    """Write the learned segmenter beside the embedder in a bundle that is being built.

    Training did not change the word and position vectors. The segmenter's graph reads them from the
    embedder's weights `shared`, which come from the same checkpoint.
    """
    updates = read_updates(recipe.updates, checkpoint.folder)
    model, weights = SEGMENTER_FILES
    write_learned_segmenter(checkpoint, updates, bundle.file(model), bundle.file(weights), shared)
    return LearnedSegmenterSpec(
        name=recipe.name,
        kind="words",
        model=model,
        weights=(weights, WEIGHTS_FILE),
        tokenizer=TOKENIZER_FILE,
        special_tokens=bert_special_tokens(checkpoint.folder / TOKENIZER),
        max_tokens=recipe.max_tokens,
        stride=recipe.stride,
        threshold=recipe.threshold,
        precision="fp32",
        cuda=cuda_graph(model),
    )


def read_updates(path: Path, checkpoint: Path) -> Trained[_Facts]:
    """Read updates. Raises CheckpointError if they were trained on other weights."""
    updates = Trained(path, _Facts, "not updates of a segmenter")
    base, digest = updates.facts.base[:8], sha256_of(checkpoint / WEIGHTS)
    if digest != updates.facts.base:
        raise CheckpointError(
            f"{path}: trained on the weights {base}, not on {digest[:8]} in {checkpoint}"
        )
    return updates


def write_learned_segmenter(
    checkpoint: EncoderCheckpoint,
    updates: Trained[_Facts],
    model: Path,
    weights: Path,
    shared: StoredWeights,
) -> None:
    """Write the graph of the learned segmenter, its weights, and a second graph for CUDA beside it.

    The inputs `input_ids`, `attention_mask` and `capitals` are int64 `(batch, tokens)`. The output
    `logits` is float32 `(batch, tokens, 1)`.
    """
    graph = GraphBuilder(OPSET, "fp32", shared)
    merged = _Merged(checkpoint, updates)
    ids, mask, capitals = (
        graph.input(name, ("batch", "tokens")) for name in SEGMENTER_INPUTS["words"]
    )
    visible = graph.op("Cast", mask, to=int(ir.DataType.FLOAT))
    bias = attention_bias(graph, graph.op("Unsqueeze", visible, graph.ints(1, 2)))
    hidden = merged.config.hidden_size
    table = merged.update("capitals.weight", (WORD_SHAPES, hidden))
    rows = graph.weight("capitals.weight", table)
    x = graph.op("Add", embeddings(graph, merged, ids), graph.op("Gather", rows, capitals))
    x = layers(graph, merged, x, bias, updates.facts.layers)
    classifier = (
        merged.update("classifier.weight", (1, hidden)),
        merged.update("classifier.bias", (1,)),
    )
    logits = graph.linear("classifier", x, *classifier)
    stored = graph.save(logits, OUTPUT, ("batch", "tokens", 1), model, weights)

    cuda = CudaEncoder("fp32", stored, shared, pooled=False)
    capitals = cuda.input("capitals", ("tokens",))
    shapes = cuda.op("Gather", cuda.weight("capitals.weight", table), capitals)
    x = cuda.op("Add", cuda.embeddings(merged, from_zero=True), shapes)
    cuda.save_logits(cuda.layers(merged, x, updates.facts.layers), *classifier, model)


class _Merged(Checkpoint[EncoderConfig]):
    """A checkpoint with the updates merged into its tensors."""

    def __init__(self, checkpoint: EncoderCheckpoint, updates: Trained[_Facts]) -> None:
        if not 1 <= updates.facts.layers <= checkpoint.config.num_hidden_layers:
            raise CheckpointError(
                f"{updates.path}: {updates.facts.layers} layers, the checkpoint has fewer"
            )
        self.config = checkpoint.config
        self._checkpoint = checkpoint
        self._updates = updates

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor of the checkpoint, updated."""
        base = self._checkpoint.tensor(name)
        if name in self._updates:
            return self.update(name, base.shape)
        stem = name.removesuffix(".weight")
        if stem == name or f"{stem}.down" not in self._updates:
            return base
        rank = len(self._updates[f"{stem}.down"])
        up = self.update(f"{stem}.up", (base.shape[0], rank))
        down = self.update(f"{stem}.down", (rank, base.shape[1]))
        # The last bits of `up @ down` would depend on the processor, and so would the hash of the
        # weights in signatures.
        merged = base.astype(np.float64)
        for column, row in zip(up.T.astype(np.float64), down.astype(np.float64), strict=True):
            merged += np.outer(column, row)
        return merged.astype(np.float32)

    def update(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return a tensor of the updates, after a check of its shape."""
        tensor = self._updates[name]
        if tensor.shape != shape:
            path = self._updates.path
            raise CheckpointError(
                f"{path}: the tensor {name} has the shape {tensor.shape}, expected {shape}"
            )
        return tensor.astype(np.float32)
