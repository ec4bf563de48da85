"""Embedders behind the `/v1/embeddings` of a server, as vLLM, TEI, SGLang and llama.cpp offer it.

This is the one part of scoring that opens a socket, and only to the server that the caller names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.util.json_http import Client, get_at

_BATCH: Final = 32  # texts of a request: TEI refuses more unless it is told otherwise
_REQUESTS: Final = 8  # at a time, so that the server can fill its batches
_TIMEOUT_S: Final = 600.0
_PAUSES: Final = (1.0, 4.0, 15.0)  # seconds before a server that is not available is asked again


@dataclass(frozen=True)
class ServedEmbedder:
    """An embedder for `Scorer.open(embedder=...)` that a server of the site runs.

    The server's weights cannot be verified, which the signature says: `emb:served:NAME`. A key is
    sent from the environment variable VCS_RUNTIME_API_KEY.

    Parameters
    ----------
    url
        Address before `/embeddings`, such as "http://127.0.0.1:8000/v1". No other host is asked.
    model
        Name of the model on the server.

    Raises
    ------
    ValueError
        The address is none, or holds a password; or the name cannot stand in a signature.
    """

    url: str
    model: str

    def __post_init__(self) -> None:
        Client(self.url, _TIMEOUT_S)
        if not re.fullmatch(r"[^\s|]+", self.model):
            raise ValueError(
                f"embedder-model must be a name without white space and '|', not {self.model!r}"
            )

    @property
    def identity(self) -> str:
        """Name of the embedder in the signature."""
        return f"served:{self.model}"

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Embed texts, as `TextEmbedder.embed` does.

        Raises TextError for a text that the server refuses.

        Raises ModelError if the server does not answer in OpenAI's form, or cannot be reached for a
        while.
        """
        client = Client(self.url, _TIMEOUT_S, pauses=_PAUSES)
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        with ThreadPoolExecutor(min(_REQUESTS, len(batches))) as pool:
            answers = pool.map(lambda batch: self._vectors(client, batch), batches)
            return [vector for vectors in answers for vector in vectors]

    def _vectors(self, client: Client, texts: Sequence[str]) -> list[Any]:
        try:
            body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
            answer = client.post("/embeddings", body)
        except TextError:
            if len(texts) == 1:
                raise
            # One text is refused, or so many at once: the halves say which.
            half = len(texts) // 2
            return self._vectors(client, texts[:half]) + self._vectors(client, texts[half:])
        vectors: list[Any] = [None] * len(texts)
        for entry in get_at(answer, list, "data"):
            place = get_at(entry, int, "index")
            if not 0 <= place < len(texts) or vectors[place] is not None:
                raise ModelError(
                    f"{self.url}: the answer has the index {place} for {len(texts)} texts"
                )
            vectors[place] = get_at(entry, list, "embedding")
        if None in vectors:
            raise ModelError(f"{self.url}: the answer has no vector for text {vectors.index(None)}")
        return vectors
