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

#: Size limit of the default vector cache folder.
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
        self.missing: set[str] = set()  # texts that this request computes
        self.parts: list[tuple[list[str], PreparedTexts]] = []  # the same texts, prepared
        self.errors: dict[str, TextError] = {}  # texts that the embedder refuses
        self.finished = False

    def computes(self, text: str, tokens: TokenRequest | None) -> bool:
        """Return whether this request computes a text's vector and any wanted token vectors."""
        if text not in self.missing:
            return False
        if tokens is None:
            return True
        if self.wanted is None or self.wanted.layer != tokens.layer:
            return False
        return text in self.wanted.texts

    def run(self) -> None:
        """Let the embedder compute; raises the errors of the device and of the model."""
        for _, part in self.parts:
            part.run()

    def vectors(self) -> dict[str, Vector]:
        """Return the unit vectors by text, float32 `(dimension,)`, of all texts without an error.

        Raises ModelError if vectors of several lengths meet, and CacheError.
        """
        self._take_awaited()
        computed: dict[str, Vector] = {}
        tokens: dict[str, TokenVectors] = {}
        for texts, part in self.parts:
            for text, vector in zip(texts, part.vectors(), strict=True):
                # A known text was embedded again only for its tokens.
                if text not in self.known:
                    computed[text] = vector
            if self.wanted:
                tokens |= part.tokens()
        self.parts.clear()
        if self.wanted:
            self._store.keep_tokens(tokens, self.wanted.layer)
            self.tokens |= tokens
        if computed:
            self._store.keep(computed)
        self.known = self.known | computed
        self.finished = True
        return self.known

    def _take_awaited(self) -> None:
        """Take the vectors that earlier requests have computed."""
        token_texts = frozenset(self.wanted.texts if self.wanted else ())
        known = dict(self.known)
        for text, other in self.awaited.items():
            known[text] = other.known[text]
            if text in token_texts and text not in self.tokens:
                self.tokens[text] = other.tokens[text]
        self.known = known
        self.awaited.clear()  # otherwise each request would hold all earlier requests


class VectorStore:
    """Vectors from memory, from a cache folder, or from the embedder, in this order.

    Texts that many pairs share are embedded once. With `may_fail`, a cache that fails is no longer
    used, and `failure` is its error.
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
        """Return a store with the cache of a folder, or without a cache; raises CacheError.

        The cache of the folder that commands use by default (`vector_store`) has a limit, and may
        fail.
        """
        if folder is None:
            return cls(embedder, None, memory_bytes)
        is_default = Path(folder) == vector_store()
        limit = STORE_BYTES if is_default else None
        try:
            cache = VectorCache(Path(folder), embedder.cache_identity, embedder.dimension, limit)
        except CacheError as error:
            if not is_default:
                raise
            return cls(embedder, None, memory_bytes, failure=str(error))
        return cls(embedder, cache, memory_bytes, may_fail=is_default)

    def _with_cache(self, use: Callable[[VectorCache], Any]) -> Any:
        """Return the result of `use(cache)`, or an empty dict without a cache."""
        if self._cache is None:
            return {}
        try:
            return use(self._cache)
        except CacheError as error:
            if not self._may_fail:
                raise
            self._cache = None
            self.failure = str(error)
            return {}

    def request(
        self,
        texts: Iterable[str],
        earlier: Iterable[VectorRequest] = (),
        tokens: TokenRequest | None = None,
    ) -> VectorRequest:
        """Look texts up, and prepare each missing text for the embedder once.

        The `earlier` requests finish before this one, and texts that they compute are not computed
        again.
        """
        request = VectorRequest(self, tokens)
        texts = list(dict.fromkeys(texts))
        lacking = self._recall_tokens(request, texts)  # texts whose tokens are missing
        request.known = self._memory.get_all(texts)
        missing = self._not_awaited(request, texts, earlier, lacking)
        unknown = [text for text in missing if text not in request.known]
        if unknown and self._cache:
            cached = self._with_cache(lambda cache: cache.load(unknown))
            self._check_lengths(cached)
            self._memory.put_all(cached.items())
            request.known |= cached
            missing = [text for text in missing if text not in cached or text in lacking]
        if missing:
            wanted = TokenRequest(tokens.layer, lacking) if tokens else None
            self._prepare(missing, request, wanted)
        return request

    def _not_awaited(
        self,
        request: VectorRequest,
        texts: Sequence[str],
        earlier: Iterable[VectorRequest],
        lacking: frozenset[str],
    ) -> list[str]:
        """Let a request await what earlier ones compute; return the other texts it still needs."""
        missing: list[str] = []
        others = [other for other in earlier if other.missing]
        for text in texts:
            tokens = request.wanted if text in lacking else None
            if text in request.known and tokens is None:
                continue
            for other in others:
                if other.computes(text, tokens):
                    request.awaited[text] = other
                    break
            else:
                missing.append(text)
        return missing

    def _recall_tokens(self, request: VectorRequest, texts: Sequence[str]) -> frozenset[str]:
        """Look up the tokens that a request wants; return the texts whose tokens are missing."""
        wanted = request.wanted
        if wanted is None:
            return frozenset()
        layer, token_texts = wanted.layer, frozenset(wanted.texts)
        for text in texts:
            if text not in token_texts:
                continue
            tokens = self._tokens.get(_token_key(text, layer))
            if tokens is not None:
                request.tokens[text] = tokens
        lacking = token_texts - request.tokens.keys()
        if lacking and self._cache:
            cached = self._with_cache(lambda cache: cache.load_tokens(TokenRequest(layer, lacking)))
            self._remember_tokens(cached, layer)
            request.tokens |= cached
        return lacking - request.tokens.keys()

    def _prepare(
        self, texts: list[str], request: VectorRequest, tokens: TokenRequest | None
    ) -> None:
        """Prepare texts, and try each half if the embedder refuses a text.

        The other texts are still prepared.
        """
        try:
            if tokens:
                prepared = self._embedder.prepare(texts, tokens)
            else:
                prepared = self._embedder.prepare(texts)
        except TextError as error:
            if len(texts) == 1:
                request.errors[texts[0]] = error
                return
            middle = len(texts) // 2
            self._prepare(texts[:middle], request, tokens)
            self._prepare(texts[middle:], request, tokens)
            return
        request.parts.append((texts, prepared))
        request.missing.update(texts)

    def keep_tokens(self, tokens: Mapping[str, TokenVectors], layer: TokenLayer) -> None:
        """Put new vectors of tokens into the cache and into memory."""
        if tokens:
            self._with_cache(lambda cache: cache.store_tokens(tokens, layer))
        self._remember_tokens(tokens, layer)

    def _remember_tokens(self, tokens: Mapping[str, TokenVectors], layer: TokenLayer) -> None:
        self._tokens.put_all((_token_key(text, layer), vectors) for text, vectors in tokens.items())

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
            if self._dimension is None:
                self._dimension = length
            if length != self._dimension:
                raise ModelError(
                    f"embedder {self._embedder.name}: it returned a vector of {length} components"
                    f" after vectors of {self._dimension}: give another model another `identity`"
                )

    def close(self) -> None:
        """Drop the vectors in memory and close the cache."""
        self._memory.clear()
        self._tokens.clear()
        self._with_cache(VectorCache.close)


def _token_key(text: str, layer: TokenLayer) -> str:
    return f"{layer.value}\0{text}"
