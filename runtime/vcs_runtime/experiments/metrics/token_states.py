"""The states of a text's tokens, of any layer of a bundle's encoder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers.processors import RobertaProcessing

from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.batching import TOKEN_BUDGET, batches
from vcs_runtime.inference.device import Device, cuda_of
from vcs_runtime.inference.onnx_session import open_session, run_session
from vcs_runtime.inference.tokenizer import Sequences, TextTokenizer, load_tokenizer
from vcs_runtime.util.extras import require
from vcs_runtime.util.lru import LRUCache

if TYPE_CHECKING:
    import onnx_ir as ir

_MEMORY_BYTES = 64 << 20
# The normalisation that closes a layer keeps its name of the checkpoint. Layer 0 is the embeddings.
_EMBEDDINGS = re.compile(r"(?:^|\.)embeddings\.LayerNorm\.weight$")
_CLOSING = re.compile(r"(?:^|\.)layer\.(\d+)\.output\.LayerNorm\.weight$")


class States(NamedTuple):
    """The tokens of a text.

    Attributes
    ----------
    vectors
        Float32 `(tokens, width)`, of unit length.
    counted
        Bool `(tokens,)`, whether a token counts; special tokens do not.
    ids
        Int64 `(tokens,)`, the number of each token in the vocabulary.
    """

    vectors: npt.NDArray[np.float32]
    counted: npt.NDArray[np.bool_]
    ids: npt.NDArray[np.int64]


class TokenStates:
    """The states of tokens in a layer of a bundle's encoder.

    The bundle's graph runs in a session of its own and ends at that layer. States of recent texts are
    remembered.

    Parameters
    ----------
    bundle
        The bundle.
    device
        Where the model runs.
    threads
        Number of threads on a CPU; None for all cores.
    layer
        Number of the layer; 0 is the embeddings. None: the last one.

    Raises
    ------
    BundleError
        The graph does not show the states of single tokens, or has no such layer.
    """

    def __init__(
        self, bundle: Bundle, device: Device, threads: int | None = None, layer: int | None = None
    ) -> None:
        require("onnx_ir", "experiments", "this experiment")
        spec = bundle.manifest.embedder
        if spec is None or spec.layout != "padded":
            raise _nothing_to_show(bundle)
        model = bundle.path(spec.model)
        name, graph, self.layer = _cut(bundle, model, layer)
        self.chosen = layer is not None
        """Whether the caller chose the layer."""
        self._device = cuda_of(device) if device.engines else device
        half = spec.precision == "fp16"
        self._session = open_session(model, self._device, threads, half=half, shown=(name, graph))
        [states] = [output for output in self._session.get_outputs() if output.name == name]
        if len(states.shape) != 3:
            raise _nothing_to_show(bundle)
        self._output = [name]
        tokenizer = load_tokenizer(bundle.path(spec.tokenizer))
        # bert-score reads the first word of a text as any other where a word begins with its space.
        self._before = " " if isinstance(tokenizer.post_processor, RobertaProcessing) else ""
        self._tokenizer = TextTokenizer(tokenizer, spec)
        self._special = [token for part in self._tokenizer.special_tokens for token in part]
        self._limit = spec.max_tokens
        self._recent: LRUCache[States] = LRUCache(_MEMORY_BYTES, lambda states: states.vectors.nbytes)
        precision = device.precision_of(spec.precision) if device.precision else spec.precision
        self.identity = f"{bundle.identity(spec)}/{spec.long_text}-{spec.max_tokens}/{precision}"
        """The model, what it does with long texts, and its precision, for the signature."""

    def get(self, texts: Iterable[str]) -> dict[str, States]:
        """Return the states of each text. Raises TextError for a text that the bundle refuses."""
        known: dict[str, States] = {}
        missing: list[str] = []
        for text in dict.fromkeys(texts):
            if (recent := self._recent.get(text)) is not None:
                known[text] = recent
            else:
                missing.append(text)
        for text, states in zip(missing, self._run(missing), strict=True):
            known[text] = states
            self._recent.put(text, states)
        return known

    def token_ids(self, text: str) -> list[int]:
        """Return a text's tokens, of all its windows. Raises TextError for a text that the bundle refuses."""
        return [token for ids in self._sequences([text]).ids for token in ids]

    def _sequences(self, texts: list[str]) -> Sequences:
        return self._tokenizer.sequences([self._before + text.strip() for text in texts], "", self._limit)

    def _run(self, texts: list[str]) -> Iterator[States]:
        sequences = self._sequences(texts)
        windows: list[npt.NDArray[np.float32]] = [np.empty(0, np.float32)] * len(sequences.ids)
        budget = TOKEN_BUDGET[self._device.provider_name]
        for batch in batches(sequences.ids, budget, mixed=self._device.is_gpu):
            [states] = run_session(self._session, self._output, batch.inputs)
            for row, vectors in zip(batch.rows, states, strict=True):
                own = vectors[: len(sequences.ids[row])].astype(np.float32)
                windows[row] = own / np.linalg.norm(own, axis=1, keepdims=True)
        parts: list[list[int]] = [[] for _ in texts]
        for row, owner in enumerate(sequences.owners):
            parts[owner].append(row)
        for rows in parts:
            ids = np.concatenate([np.array(sequences.ids[row], np.int64) for row in rows])
            vectors = np.concatenate([windows[row] for row in rows])
            yield States(vectors, ~np.isin(ids, self._special), ids)


def _cut(bundle: Bundle, model: Path, layer: int | None) -> tuple[str, bytes, int | None]:
    """Return the name of a layer's states, the graph that ends there, and the layer's number if known."""
    import onnx_ir as ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    opened = ir.load(model)
    last, layers = _normalised(opened.graph)
    if last is None or last.name is None:
        raise _nothing_to_show(bundle)
    if layer is None:
        value, layer = last, next((number for number, output in layers.items() if output is last), None)
    elif layer in layers:
        value = layers[layer]
    elif layers:
        raise BundleError(
            f"bundle {bundle.root}: its encoder has no layer {layer}, only {min(layers)} to {max(layers)}"
        )
    else:
        raise BundleError(f"bundle {bundle.root}: only the last layer of its encoder can be read")
    opened.graph.outputs[:] = [value]
    RemoveUnusedNodesPass()(opened)
    return str(value.name), ir.to_proto(opened).SerializeToString(), layer


def _normalised(graph: ir.Graph) -> tuple[ir.Value | None, dict[int, ir.Value]]:
    """Return the output of the last normalisation, which the pooling takes, and of each layer's last one."""
    last = None
    layers: dict[int, ir.Value] = {}
    for node in graph:
        if node.op_type != "LayerNormalization":
            continue
        last = node.outputs[0]
        scale = (node.inputs[1].name if node.inputs[1] else None) or ""
        if _EMBEDDINGS.search(scale):
            layers[0] = last
        elif closing := _CLOSING.search(scale):
            layers[int(closing.group(1)) + 1] = last
    return last, layers


def _nothing_to_show(bundle: Bundle) -> BundleError:
    return BundleError(f"bundle {bundle.root}: its embedder shows no states of single tokens")
