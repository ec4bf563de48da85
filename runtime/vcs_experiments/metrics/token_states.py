"""The states of a text's tokens, of any layer of a bundle's encoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers.processors import RobertaProcessing

from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference.device import Device, cuda_of
from vcs_runtime.inference.embedder import Embedder, embedder_spec
from vcs_runtime.inference.token_vectors import TokenLayer, TokenVectors
from vcs_runtime.inference.tokenizer import TextTokenizer, load_tokenizer
from vcs_runtime.util.lru import LRUCache

_MEMORY_BYTES = 64 << 20


class States(NamedTuple):
    """The tokens of a text."""

    vectors: npt.NDArray[np.float32]  # (tokens, width), of unit length
    counted: npt.NDArray[np.bool_]  # (tokens,), false for special tokens
    ids: npt.NDArray[np.int64]  # (tokens,), numbers in the vocabulary


class TokenStates:
    """The states of tokens in a layer of a bundle's encoder (None: the last), with a cache of recent texts.

    An open `embedder` of the bundle is used where it can show the states. Raises BundleError if none can.
    """

    def __init__(
        self, bundle: Bundle, device: Device, threads: int | None = None, layer: int | None = None,
        embedder: Embedder | None = None,
    ) -> None:  # fmt: skip
        spec = embedder_spec(bundle)
        tokenizer = load_tokenizer(bundle.path(spec.tokenizer))
        # bert-score reads the first word of a text as any other where a word begins with its space.
        self._before = " " if isinstance(tokenizer.post_processor, RobertaProcessing) else ""
        self._tokenizer = TextTokenizer(tokenizer, spec)
        self._special = [token for part in self._tokenizer.special_tokens for token in part]
        self._limit = spec.max_tokens
        self._embedder, self._layer = _shown(bundle, device, threads, layer, embedder)
        self.layer = self._layer.number
        self.chosen = layer is not None
        """Whether the caller chose the layer."""
        self._recent: LRUCache[States] = LRUCache(_MEMORY_BYTES, lambda states: states.vectors.nbytes)
        precision = device.precision_of(spec.precision) if device.precision else spec.precision
        self.identity = f"{bundle.identity(spec)}/{spec.long_text}-{spec.max_tokens}/{precision}"
        """The model, what it does with long texts, and its precision, for the signature."""

    def get(self, texts: Iterable[str]) -> dict[str, States]:
        """Return the states of each text. Raises TextError for a text that the bundle refuses."""
        known: dict[str, States] = {}
        missing: dict[str, str] = {}
        for text in texts:
            if (recent := self._recent.get(text)) is not None:
                known[text] = recent
            else:
                missing[text] = self._read(text)
        tokens = self._embedder.token_vectors(list(dict.fromkeys(missing.values())), self._layer)
        for text, read in missing.items():
            known[text] = self._states(tokens[read])
            self._recent.put(text, known[text])
        return known

    def token_ids(self, text: str) -> list[int]:
        """Return a text's tokens, of all its windows. Raises TextError for a text that the bundle refuses."""
        windows = self._tokenizer.sequences([self._read(text)], "", self._limit).ids
        return [token for ids in windows for token in ids]

    def _read(self, text: str) -> str:
        """Return a text as it is read."""
        return self._before + text.strip()

    def _states(self, tokens: TokenVectors) -> States:
        vectors = tokens.vectors / np.linalg.norm(tokens.vectors, axis=1, keepdims=True)
        return States(vectors, ~np.isin(tokens.ids, self._special), tokens.ids.astype(np.int64))


def _shown(
    bundle: Bundle, device: Device, threads: int | None, layer: int | None, embedder: Embedder | None
) -> tuple[Embedder, TokenLayer]:
    """Return what shows the states of a layer: the embedder that is open, or one more."""
    if embedder is not None:
        try:
            return embedder, embedder.show_tokens(layer)
        except DeviceError:  # not on its device, or not beside the same vectors of texts
            pass
    own = Embedder(bundle, cuda_of(device) if device.engines else device, threads)
    return own, own.show_tokens(layer, keep_vectors=False)
