"""Texts to vectors: tokens, windows, batches, one ONNX Runtime session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle import Bundle, EmbedderSpec, open_bundle
from vcs_runtime.device import Device, choose_device, open_session, run_session
from vcs_runtime.errors import BundleError
from vcs_runtime.packing import INPUTS, TOKEN_BUDGET, batches
from vcs_runtime.text import check_string, check_texts
from vcs_runtime.tokenizer import Sequences, TextTokenizer, load_tokenizer

if TYPE_CHECKING:
    import onnxruntime as ort

FloatArray = npt.NDArray[np.float32]
# Texts that are tokenised at a time, so that a long list of them never holds all its token ids at once.
_TOKENISE = 4096


class Embedder:
    """The embedding model of a bundle. Open one with `Embedder.open`; close it, or use it in `with`."""

    def __init__(self, bundle: Bundle, device: Device, threads: int | None = None) -> None:
        if bundle.manifest.embedder is None:
            raise BundleError(f"bundle {bundle.root}: it holds no embedder")
        self.spec: EmbedderSpec = bundle.manifest.embedder
        self.device = device
        self.weights_hash = bundle.weights_hash(self.spec)
        self.hash = bundle.engine_hash(self.spec)
        self._tokenizer = TextTokenizer(load_tokenizer(bundle.path(self.spec.tokenizer)), self.spec)
        half = self.spec.precision == "fp16"
        session = open_session(bundle.path(self.spec.model), device, threads, half=half)
        inputs = {item.name: item.type for item in session.get_inputs()}
        if inputs != dict.fromkeys(INPUTS[self.spec.layout], "tensor(int64)"):
            raise BundleError(
                f"bundle {bundle.root}: {self.spec.model} has the inputs {inputs}, "
                f"which are not those of a {self.spec.layout} graph"
            )
        self._output = session.get_outputs()[0].name
        self._session: ort.InferenceSession | None = session

    @classmethod
    def open(
        cls,
        bundle: str | os.PathLike[str] | Bundle = "default",
        device: str = "auto",
        threads: int | None = None,
    ) -> Embedder:
        """Open the embedder of a bundle (a folder, or "default") on a device; nothing is downloaded.

        Raises BundleError, DeviceError, ValueError (`device` is no device name).
        """
        opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        return cls(opened, choose_device(device), threads)

    def embed(
        self, texts: Sequence[str], instruction: str | None = None, max_length: int | None = None
    ) -> FloatArray:
        """Embed texts: float32 `(len(texts), dimension)`, rows of unit length (docs/vcs.md, section 1).

        A row depends on its text alone, not on the texts beside it: on a CPU to the bit, on a GPU within
        rounding. `instruction` is put before each text; None stands for the bundle's own, which is "" for
        VCS. Where the bundle says `mask_instruction`, the model reads it but does not pool it.
        `max_length` lowers the model's window (tokens, special tokens included). A text that is longer than
        the window is embedded in windows of about equal length, whose vectors are averaged by token count
        and normalised (`long_text` "window_mean"), cut at its right end ("truncate"), or refused ("error").

        Raises TextError naming the text (`texts[3]: ...`), ValueError, DeviceError.
        """
        check_texts(texts)
        limit = self.spec.max_tokens if max_length is None else max_length
        special = self._tokenizer.frame_tokens
        if not special < limit <= self.spec.max_tokens:
            raise ValueError(
                f"max_length must be in [{special + 1}, {self.spec.max_tokens}], not {max_length}"
            )
        before = self.spec.instruction if instruction is None else instruction
        check_string(before, "instruction")
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors = np.empty((len(distinct), self.spec.dimension), np.float32)
        keys = list(distinct)
        for start in range(0, len(keys), _TOKENISE):
            part = keys[start : start + _TOKENISE]
            vectors[start : start + len(part)] = self._embed_distinct(part, before, limit)
        return vectors if len(distinct) == len(texts) else vectors[[distinct[text] for text in texts]]

    def _embed_distinct(self, texts: list[str], instruction: str, limit: int) -> FloatArray:
        sequences = self._tokenizer.sequences(texts, instruction, limit)
        owners = sequences.owners
        vectors = self._run(sequences)
        if len(owners) == len(texts):
            return vectors
        # Texts of one window keep the vector as the model gave it, to the bit.
        counts = np.array([len(ids) for ids in sequences.ids], np.float64) - self._tokenizer.frame_tokens
        sums = np.zeros((len(texts), self.spec.dimension), np.float64)
        np.add.at(sums, owners, vectors * counts[:, None])
        several = np.bincount(owners) > 1
        result = np.empty((len(texts), self.spec.dimension), np.float32)
        result[several] = sums[several] / np.linalg.norm(sums[several], axis=1, keepdims=True)
        result[~several] = vectors[~several[owners]]
        return result

    def _run(self, sequences: Sequences) -> FloatArray:
        session = self._session
        if session is None:
            raise RuntimeError("the embedder is closed")
        vectors = np.empty((len(sequences.ids), self.spec.dimension), np.float32)
        engine, layout = self.device.engine, self.spec.layout
        mixed = layout == "packed" and engine != "ort-cpu"
        for batch in batches(sequences.ids, TOKEN_BUDGET[engine], layout, sequences.skip, mixed=mixed):
            [found] = run_session(session, [self._output], batch.inputs)
            if found.shape != (len(batch.rows), self.spec.dimension):
                raise BundleError(
                    f"{self.spec.name}: the model returned an array {found.shape} for "
                    f"{len(batch.rows)} texts of dimension {self.spec.dimension}"
                )
            vectors[batch.rows] = found
        if not np.isfinite(vectors).all():
            raise BundleError(f"{self.spec.name}: the model returned NaN or infinity")
        return vectors

    def close(self) -> None:
        """Give the session and its memory back. The embedder cannot be used afterwards."""
        self._session = None

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
