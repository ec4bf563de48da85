"""Texts to vectors: tokens, windows, batches, one ONNX Runtime session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from vcs_runtime.bundle import Bundle, EmbedderSpec, open_bundle
from vcs_runtime.device import Device, choose_device, open_session, run_session
from vcs_runtime.errors import BundleError, TextError
from vcs_runtime.packing import TOKEN_BUDGET, batches
from vcs_runtime.text import check_texts
from vcs_runtime.tokenizer import load_tokenizer

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
        self._tokenizer = load_tokenizer(bundle.path(self.spec.tokenizer))
        self._prefix, self._suffix = _special_tokens(self._tokenizer)
        session = open_session(bundle.path(self.spec.model), device, threads)
        inputs = [item.name for item in session.get_inputs()]
        if inputs != ["input_ids", "attention_mask"]:
            raise BundleError(f"bundle {bundle.root}: {self.spec.model} has the inputs {inputs}")
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

    def embed(self, texts: Sequence[str], instruction: str = "", max_length: int | None = None) -> FloatArray:
        """Embed texts: float32 `(len(texts), dimension)`, rows of unit length (docs/vcs.md, section 1).

        A row depends on its text alone, not on the texts beside it. `instruction` is put before each text.
        `max_length` lowers the model's window (tokens, special tokens included). A text that is longer than
        the window is embedded in windows of about equal length, whose vectors are averaged by token count
        and normalised (`long_text` "window_mean"), or refused ("error").

        Raises TextError naming the text (`texts[3]: ...`), ValueError, DeviceError.
        """
        check_texts(texts)
        limit = self.spec.max_tokens if max_length is None else max_length
        special = len(self._prefix) + len(self._suffix)
        if not special < limit <= self.spec.max_tokens:
            raise ValueError(
                f"max_length must be in [{special + 1}, {self.spec.max_tokens}], not {max_length}"
            )
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors = np.empty((len(distinct), self.spec.dimension), np.float32)
        keys = list(distinct)
        for start in range(0, len(keys), _TOKENISE):
            part = keys[start : start + _TOKENISE]
            vectors[start : start + len(part)] = self._embed_distinct(part, instruction, limit - special)
        return vectors if len(distinct) == len(texts) else vectors[[distinct[text] for text in texts]]

    def _embed_distinct(self, texts: list[str], instruction: str, limit: int) -> FloatArray:
        encodings = self._tokenizer.encode_batch_fast(
            [instruction + text for text in texts] if instruction else texts, add_special_tokens=False
        )
        windows: list[list[int]] = []
        owners: list[int] = []
        for i, encoding in enumerate(encodings):
            if len(encoding.ids) > limit and self.spec.long_text == "error":
                raise TextError(
                    f"texts: a text of {len(encoding.ids)} tokens is longer than the model's {limit}, "
                    f"and {self.spec.name} refuses those: {texts[i][:60]!r}"
                )
            for window in cut_windows(encoding.ids, limit):
                windows.append(window)
                owners.append(i)
        vectors = self._run([[*self._prefix, *window, *self._suffix] for window in windows])
        if len(windows) == len(texts):
            return vectors
        # Texts of one window keep the vector as the model gave it, to the bit.
        counts = np.array([len(window) for window in windows], np.float64)
        sums = np.zeros((len(texts), self.spec.dimension), np.float64)
        np.add.at(sums, owners, vectors * counts[:, None])
        several = np.bincount(owners) > 1
        result = np.empty((len(texts), self.spec.dimension), np.float32)
        result[several] = sums[several] / np.linalg.norm(sums[several], axis=1, keepdims=True)
        result[~several] = vectors[~several[owners]]
        return result

    def _run(self, sequences: list[list[int]]) -> FloatArray:
        session = self._session
        if session is None:
            raise RuntimeError("the embedder is closed")
        vectors = np.empty((len(sequences), self.spec.dimension), np.float32)
        for batch in batches(sequences, TOKEN_BUDGET[self.device.engine]):
            inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
            [vectors[batch.rows]] = run_session(session, [self._output], inputs)
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


def cut_windows(ids: list[int], limit: int) -> list[list[int]]:
    """Cut token ids into the fewest windows of at most `limit` tokens; lengths differ by one at most."""
    count = max(1, -(-len(ids) // limit))
    edges = [len(ids) * i // count for i in range(count + 1)]
    return [ids[start:stop] for start, stop in pairwise(edges)]


def _special_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a text, learnt from how it encodes one."""
    text, framed = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    for start in range(len(framed) - len(text) + 1):
        if framed[start : start + len(text)] == text:
            return framed[:start], framed[start + len(text) :]
    raise BundleError("the tokenizer changes a text when it adds special tokens")
