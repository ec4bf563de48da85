"""Vectors of texts, and of their tokens: from memory, from a cache folder, or from the embedder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from vcs_runtime.bundle.paths import vector_store
from vcs_runtime.errors import CacheError, ModelError, TextError
from vcs_runtime.inference.custom import PreparedTexts, ScoringEmbedder
from vcs_runtime.inference.token_vectors import TokenLayer, TokenRequest, TokenVectors
from vcs_runtime.inference.vector_cache import Vector, VectorCache
from vcs_runtime.util.lru import LRUCache

#: The size of the folder of vectors that commands keep unasked.
STORE_BYTES: Final = 2 * 10**9


class VectorRequest:
    """A request for the vectors of a block of texts.

    Call `run` once on the device, and then `vectors` once.
    """

    def __init__(self, store: VectorStore, wanted: TokenRequest | None = None) -> None:
        self._store = store
        self.wanted = wanted  # None: no token vectors
        self.tokens: dict[str, TokenVectors] = {}
        self.known: dict[str, Vector] = {}
        self.awaited: dict[str, VectorRequest] = {}  # texts that an earlier request computes
        self.missing: set[str] = set()  # texts that this one computes
        self.parts: list[tuple[list[str], PreparedTexts]] = []  # those, prepared for the embedder
        self.errors: dict[str, TextError] = {}  # texts that the embedder refuses
        self.finished = False

    def computes(self, text: str, tokens: TokenRequest | None) -> bool:
        """Return whether this request computes a text's vector and any wanted token vectors."""
        if text not in self.missing or not tokens:
            return text in self.missing
        return (
            self.wanted is not None
            and self.wanted.layer == tokens.layer
            and text in self.wanted.texts
        )

    def run(self) -> None:
        """Let the embedder compute. It raises what the device or the model does."""
        for _, part in self.parts:
            part.run()

    def vectors(self) -> dict[str, Vector]:
        """Return the unit vectors by text, float32 `(dimension,)`, of all texts without an error.

        Raises ModelError if vectors of several lengths meet, and CacheError.
        """
        vectors = self.known | {text: other.known[text] for text, other in self.awaited.items()}
        if self.wanted:
            wanted = self.awaited.keys() & frozenset(self.wanted.texts) - self.tokens.keys()
            self.tokens |= {text: self.awaited[text].tokens[text] for text in wanted}
        self.awaited.clear()  # or each request would keep all earlier ones
        fresh = {
            text: row
            for texts, part in self.parts
            for text, row in zip(texts, part.vectors(), strict=True)
            if text not in vectors  # known, and embedded again for its tokens
        }
        if self.wanted:
            tokens = {text: own for _, part in self.parts for text, own in part.tokens().items()}
            self._store.keep_tokens(tokens, self.wanted.layer)
            self.tokens |= tokens
        self.parts.clear()
        if fresh:
            self._store.keep(fresh)
        self.known = vectors | fresh
        self.finished = True
        return self.known


class VectorStore:
    """Vectors from memory, from a cache folder, or from the embedder, in this order.

    Texts that many pairs share are embedded once. With `may_fail` a cache that fails is left, and
    `failure` says why.
    """

    def __init__(
        self,
        embedder: ScoringEmbedder,
        cache: VectorCache | None,
        memory_bytes: int,
        *,
        may_fail: bool = False,
        failure: str = "",
    ) -> None:
        self._embedder = embedder
        self._cache = cache
        self._may_fail = may_fail
        self.failure = failure
        self._dimension = embedder.dimension
        self._memory: LRUCache[Vector] = LRUCache(memory_bytes, lambda vector: vector.nbytes)
        self._tokens: LRUCache[TokenVectors] = LRUCache(memory_bytes, lambda tokens: tokens.nbytes)

    @classmethod
    def open(
        cls, embedder: ScoringEmbedder, folder: str | os.PathLike[str] | None, memory_bytes: int
    ) -> VectorStore:
        """Return a store with the cache of a folder, or without; raises CacheError.

        The cache of the folder that commands use unasked (`vector_store`) has a limit, and may
        fail.
        """
        if folder is None:
            return cls(embedder, None, memory_bytes)
        unasked = Path(folder) == vector_store()
        limit = STORE_BYTES if unasked else None
        try:
            cache = VectorCache(Path(folder), embedder.cache_identity, embedder.dimension, limit)
        except CacheError as error:
            if not unasked:
                raise
            return cls(embedder, None, memory_bytes, failure=str(error))
        return cls(embedder, cache, memory_bytes, may_fail=unasked)

    def _with_cache(self, use: Callable[[VectorCache], Any]) -> Any:
        """Return what a call of the cache returns, or an empty dict without a cache."""
        try:
            return use(self._cache) if self._cache else {}
        except CacheError as error:
            if not self._may_fail:
                raise
            self._cache, self.failure = None, str(error)
            return {}

    def request(
        self,
        texts: Iterable[str],
        earlier: Iterable[VectorRequest] = (),
        tokens: TokenRequest | None = None,
    ) -> VectorRequest:
        """Look texts up, and prepare the missing ones for the embedder, each of them once.

        What `earlier` requests compute, which are finished before this one, is not computed again.
        """
        request = VectorRequest(self, tokens)
        missing: list[str] = []
        earlier = [other for other in earlier if other.missing]
        texts = list(dict.fromkeys(texts))
        lacking = self._recall_tokens(request, texts)
        request.known = self._memory.get_all(texts)
        for text in texts:
            wants_tokens = text in lacking
            if text in request.known and not wants_tokens:
                continue
            for other in earlier:
                if other.computes(text, tokens if wants_tokens else None):
                    request.awaited[text] = other
                    break
            else:
                missing.append(text)
        unknown = [text for text in missing if text not in request.known]
        if unknown and self._cache:
            cached = self._with_cache(lambda cache: cache.load(unknown))
            self._check_lengths(cached)
            self._memory.put_all(cached.items())
            request.known |= cached
            missing = [text for text in missing if text not in cached or text in lacking]
        if missing:
            self._prepare(missing, request, TokenRequest(tokens.layer, lacking) if tokens else None)
        return request

    def _recall_tokens(self, request: VectorRequest, texts: Sequence[str]) -> frozenset[str]:
        """Look up the tokens that a request wants; returns the texts whose tokens are missing."""
        if not (wanted := request.wanted):
            return frozenset()
        names = frozenset(wanted.texts)
        for text in (text for text in texts if text in names):
            if (tokens := self._tokens.get(_token_key(text, wanted.layer))) is not None:
                request.tokens[text] = tokens
        lacking = names - request.tokens.keys()
        if lacking and self._cache:
            cached = self._with_cache(
                lambda cache: cache.load_tokens(TokenRequest(wanted.layer, lacking))
            )
            self._remember_tokens(cached, wanted.layer)
            request.tokens |= cached
        return lacking - request.tokens.keys()

    def _prepare(
        self, texts: list[str], request: VectorRequest, tokens: TokenRequest | None
    ) -> None:
        """Prepare texts, and try each half if the embedder refuses a text.

        The other texts are still prepared.
        """
        try:
            prepare = self._embedder.prepare
            request.parts.append((texts, prepare(texts, tokens) if tokens else prepare(texts)))
            request.missing.update(texts)
        except TextError as error:
            if len(texts) == 1:
                request.errors[texts[0]] = error
                return
            middle = len(texts) // 2
            self._prepare(texts[:middle], request, tokens)
            self._prepare(texts[middle:], request, tokens)

    def keep_tokens(self, tokens: Mapping[str, TokenVectors], layer: TokenLayer) -> None:
        """Put new vectors of tokens into the cache and into memory."""
        if tokens:
            self._with_cache(lambda cache: cache.store_tokens(tokens, layer))
        self._remember_tokens(tokens, layer)

    def _remember_tokens(self, tokens: Mapping[str, TokenVectors], layer: TokenLayer) -> None:
        self._tokens.put_all((_token_key(text, layer), own) for text, own in tokens.items())

    def keep(self, vectors: Mapping[str, Vector]) -> None:
        """Put new vectors into the cache and into memory.

        Raises ModelError if their lengths differ.
        """
        self._check_lengths(vectors)
        self._with_cache(lambda cache: cache.store(vectors))
        # A view would keep the whole batch in memory as long as one row is cached.
        self._memory.put_all((text, vector.copy()) for text, vector in vectors.items())

    def _check_lengths(self, vectors: Mapping[str, Vector]) -> None:
        for length in {len(vector) for vector in vectors.values()}:
            self._dimension = self._dimension or length
            if length != self._dimension:
                raise ModelError(
                    f"embedder {self._embedder.name}: a vector of {length} components after vectors"
                    f" of {self._dimension}: another model needs another `identity`"
                )

    def close(self) -> None:
        """Drop the vectors in memory and close the cache."""
        self._memory.clear()
        self._tokens.clear()
        self._with_cache(VectorCache.close)


def _token_key(text: str, layer: TokenLayer) -> str:
    return f"{layer.value}\0{text}"
