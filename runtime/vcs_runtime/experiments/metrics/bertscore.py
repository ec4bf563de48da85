"""BERTScore by the encoder of a bundle: each token in context is matched with the most similar one.

Zhang et al. 2020 (https://arxiv.org/abs/1904.09675), section 3: greedy matching by cosine, of the last
layer's states, without idf weights and without rescaling. As in the authors' package, special tokens can be
matched, but have no weight. A text that is longer than the model's window is read in windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.batching import TOKEN_BUDGET, batches
from vcs_runtime.inference.device import Device, cuda_of
from vcs_runtime.inference.onnx_session import open_session, run_session
from vcs_runtime.inference.tokenizer import TextTokenizer, load_tokenizer
from vcs_runtime.util.extras import require
from vcs_runtime.util.lru import LRUCache

COLUMNS = ("BERTScore-P", "BERTScore-R", "BERTScore-F1")
_MEMORY_BYTES = 64 << 20


class States(NamedTuple):
    """The tokens of a text.

    Attributes
    ----------
    vectors
        Float32 `(tokens, width)`, of unit length.
    counted
        Bool `(tokens,)`, whether a token counts; special tokens do not.
    """

    vectors: npt.NDArray[np.float32]
    counted: npt.NDArray[np.bool_]


class TokenStates:
    """The last layer's states of a bundle's encoder, for each token.

    The bundle's graph runs in a session of its own, with one output more: the input of the pooling. States of
    recent texts are remembered.

    Parameters
    ----------
    bundle
        The bundle.
    device
        Where the model runs.
    threads
        Number of threads on a CPU; None for all cores.

    Raises
    ------
    BundleError
        The graph does not show the states of single tokens.
    """

    def __init__(self, bundle: Bundle, device: Device, threads: int | None = None) -> None:
        require("onnx_ir", "experiments", "this experiment")
        spec = bundle.manifest.embedder
        if spec is None or spec.layout != "padded":
            raise _nothing_to_show(bundle)
        model = bundle.path(spec.model)
        shown = name, _ = _with_states(bundle, model)
        self._device = cuda_of(device) if device.engines else device
        self._session = open_session(model, self._device, threads, half=spec.precision == "fp16", shown=shown)
        [states] = [output for output in self._session.get_outputs() if output.name == name]
        if len(states.shape) != 3:
            raise _nothing_to_show(bundle)
        self._output = [name]
        self._tokenizer = TextTokenizer(load_tokenizer(bundle.path(spec.tokenizer)), spec)
        self._special = [token for part in self._tokenizer.special_tokens for token in part]
        self._limit = spec.max_tokens
        self._recent: LRUCache[States] = LRUCache(_MEMORY_BYTES, lambda states: states.vectors.nbytes)

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

    def _run(self, texts: list[str]) -> list[States]:
        sequences = self._tokenizer.sequences(texts, "", self._limit)
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
        return [
            States(
                np.concatenate([windows[row] for row in rows]),
                ~np.isin(np.concatenate([sequences.ids[row] for row in rows]), self._special),
            )
            for rows in parts
        ]


def bertscore(reference: States, generated: States) -> dict[str, float]:
    """Compute precision, recall and F1, by column; 0 if no token of a text counts."""
    similarity = generated.vectors @ reference.vectors.T
    if not (generated.counted.any() and reference.counted.any()):
        return dict.fromkeys(COLUMNS, 0.0)
    precision = float(similarity.max(axis=1)[generated.counted].mean(dtype=np.float64))
    recall = float(similarity.max(axis=0)[reference.counted].mean(dtype=np.float64))
    both = precision + recall
    return dict(
        zip(COLUMNS, (precision, recall, 2 * precision * recall / both if both else 0.0), strict=True)
    )


def _with_states(bundle: Bundle, model: Path) -> tuple[str, bytes]:
    """Name of the output for the last layer's states, and the graph with it."""
    # In every encoder that normalises its layers, the pooling takes the output of the last normalisation.
    import onnx_ir as ir

    opened = ir.load(model)
    normed = [node for node in opened.graph if node.op_type == "LayerNormalization"]
    if not normed or (name := normed[-1].outputs[0].name) is None:
        raise _nothing_to_show(bundle)
    opened.graph.outputs.append(normed[-1].outputs[0])
    return name, ir.to_proto(opened).SerializeToString()


def _nothing_to_show(bundle: Bundle) -> BundleError:
    return BundleError(f"bundle {bundle.root}: its embedder shows no states of single tokens")
