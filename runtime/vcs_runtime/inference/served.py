"""Embedders on a server with `/v1/embeddings`, such as vLLM, TEI, SGLang or llama.cpp.

No other part of scoring opens a socket. It is opened only to the server that the caller names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.inference.proof import VECTORS, Run, Subject, check_served
from vcs_runtime.util.json_http import Client, get_at

_BATCH: Final = 32  # texts in a request: by default TEI refuses more
_REQUESTS: Final = 8  # requests at a time, so that the server can fill its batches
_TIMEOUT_S: Final = 600.0
_PAUSES: Final = (1.0, 4.0, 15.0)  # seconds before each new attempt to reach the server


@dataclass(frozen=True)
class ServedEmbedder:
    """An embedder for `Scorer.open(embedder=...)` that runs on a server.

    The server's weights cannot be verified, which the signature shows: `emb:served:NAME`. The
    environment variable VCS_RUNTIME_API_KEY is sent as the key.

    Parameters
    ----------
    url
        Address before `/embeddings`, such as "http://127.0.0.1:8000/v1". No request goes to another
        host.
    model
        Name of the model on the server.

    Raises
    ------
    ValueError
        The address is not valid, or contains a password; or the name cannot be part of a signature.
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

        Raises ModelError if the answer does not have OpenAI's form, or if all attempts to reach the
        server fail.
        """
        client = Client(self.url, _TIMEOUT_S, pauses=_PAUSES)
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        vectors: list[list[float]] = []
        with ThreadPoolExecutor(min(_REQUESTS, len(batches))) as pool:
            for batch_vectors in pool.map(partial(self._vectors, client), batches):
                vectors += batch_vectors
        return vectors

    def check_server(self, embed: Run) -> None:
        """Compare the server with itself and with its first answers; raises ProofError.

        `embed` returns unit vectors by this embedder.
        """
        place = f"{self.url} {self.model}"
        check_served(Subject(f"embedder {place}", VECTORS, embed, "served", place, place))

    def _vectors(self, client: Client, texts: Sequence[str]) -> list[Any]:
        """Return the vectors of the texts in one request."""
        try:
            body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
            answer = client.post("/embeddings", body)
        except TextError:
            if len(texts) == 1:
                raise
            # The server refuses one of the texts, or their number: try each half.
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
