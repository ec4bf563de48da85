"""Caches of vectors: in memory while a scorer is open, and in a folder if one is named.

A vector depends on its text, on the weights and on how they are run, but never on a batch. A cached vector is
therefore as good as a new one, and a cache folder can serve several processes and many runs.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import CacheError, ModelError, TextError
from vcs_runtime.inference.custom import PreparedTexts, ScoringEmbedder
from vcs_runtime.util.lru import LRUCache

Vector = npt.NDArray[np.float32]

_FILE = "vectors-2.sqlite"
_OLD = "vectors-1.sqlite"  # without digests
_DIGEST = 8  # bytes of a digest behind each vector
_LOOKUP = 500  # keys of one SELECT: below SQLite's oldest limit on parameters
_WAIT_S = 60.0  # for another process to finish writing


class VectorCache:
    """An SQLite file of vectors in a folder, to which several processes may write.

    All methods raise CacheError, with the name of the file, if SQLite or the disk fails.

    Parameters
    ----------
    folder
        Folder of the file; it is created if missing.
    identity
        Separates vectors that must not be mixed: `cache_identity` of the embedder.
    dimension
        Length of a vector. None: any.
    """

    def __init__(self, folder: Path, identity: str, dimension: int | None) -> None:
        self.path = Path(folder) / _FILE
        self._identity = identity
        self._dimension = dimension
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()  # scoring threads share the connection
        with _forks.lock:
            _forks.caches.add(self)
        with self._errors(), self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection()

    def load(self, texts: Iterable[str]) -> dict[str, Vector]:
        """Return the cached vectors by text; damaged ones, whose digest does not fit, are left out."""
        keys = {self._key(text): text for text in texts}
        vectors: dict[str, Vector] = {}
        with self._errors(), self._lock:
            db = self._connection()
            all_keys = list(keys)
            for start in range(0, len(all_keys), _LOOKUP):
                part = all_keys[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                rows = db.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                for key, blob in rows:
                    # A damaged file may hold values of other types.
                    if isinstance(blob, bytes) and blob[-_DIGEST:] == _digest(key, blob[:-_DIGEST]):
                        vector = np.frombuffer(blob[:-_DIGEST], "<f4")
                        if len(vector) == (self._dimension or len(vector)):
                            vectors[keys[key]] = vector
        return vectors

    def store(self, vectors: Mapping[str, Vector]) -> None:
        """Store vectors by text in one transaction."""
        rows = []
        for text, vector in vectors.items():
            key, data = self._key(text), vector.astype("<f4").tobytes()
            rows.append((key, data + _digest(key, data)))
        with self._errors(), self._lock, self._connection() as db:
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            self._disconnect()

    def _connection(self) -> sqlite3.Connection:
        """Return the connection, which is opened if need be. The caller has the lock."""
        if self._db is None:
            db = sqlite3.connect(self.path, timeout=_WAIT_S, check_same_thread=False)
            try:
                db.execute("PRAGMA journal_mode=WAL")  # readers go on while one process writes
                db.execute("PRAGMA synchronous=NORMAL")
                with db:
                    db.execute(
                        "CREATE TABLE IF NOT EXISTS vectors "
                        "(key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
                    )
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._identity}\0{text}".encode()).digest()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise CacheError(f"vector cache {self.path}: {error}") from None


class _Forks:
    """No connection lives through a fork: all are closed before it, and opened again when they are used.

    SQLite keeps its locks of a file in the process. A forked child would inherit those that another thread
    held, and wait for ever, and it would take the parent's locks for its own.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.caches: weakref.WeakSet[VectorCache] = weakref.WeakSet()
        self._held = ExitStack()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._begin, after_in_parent=self._held.close, after_in_child=self._held.close
            )

    def _begin(self) -> None:
        self._held.enter_context(self.lock)
        for cache in list(self.caches):
            self._held.enter_context(cache._lock)
            with suppress(sqlite3.Error):  # where the disk is full, the next call meets it again
                cache._disconnect()


_forks = _Forks()


def _digest(key: bytes, vector: bytes) -> bytes:
    """Return a digest of a vector and of what it belongs to: a flipped bit must not change a score."""
    return hashlib.blake2b(vector, digest_size=_DIGEST, key=key).digest()


def outdated_cache(folder: Path) -> Path | None:
    """Return the cache file of an earlier version, if a folder has that one alone. It is never read."""
    old = folder / _OLD
    return old if old.is_file() and not (folder / _FILE).exists() else None


class VectorRequest:
    """The texts of a block on their way to vectors: `run` on the device, then `vectors`, each once.

    Parameters
    ----------
    store
        Keeps the new vectors.

    Attributes
    ----------
    known
        Vectors that were known before.
    awaited
        Texts that an earlier request computes.
    missing
        Texts that this request computes.
    parts
        The missing texts, prepared for the embedder.
    errors
        Texts that the embedder refuses.
    finished
        Whether `vectors` has been called.
    """

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.known: dict[str, Vector] = {}
        self.awaited: dict[str, VectorRequest] = {}
        self.missing: set[str] = set()
        self.parts: list[tuple[list[str], PreparedTexts]] = []
        self.errors: dict[str, TextError] = {}
        self.finished = False

    def run(self) -> None:
        """Let the embedder compute. It raises what the device or the model does."""
        for _, part in self.parts:
            part.run()

    def vectors(self) -> dict[str, Vector]:
        """Return the unit vectors by text, float32 `(dimension,)`, of all texts without an error.

        Raises ModelError if vectors of several lengths meet, and CacheError.
        """
        vectors = self.known | {text: other.known[text] for text, other in self.awaited.items()}
        self.awaited.clear()  # or each request would keep all earlier ones
        # Rows are copied, since a view would keep the whole batch in memory as long as one row is cached.
        fresh = {
            text: row.copy()
            for texts, part in self.parts
            for text, row in zip(texts, part.vectors(), strict=True)
        }
        self.parts.clear()
        if fresh:
            self._store.keep(fresh)
        self.known = vectors | fresh
        self.finished = True
        return self.known


class VectorStore:
    """Vectors from memory, from a cache folder, or from the embedder, in this order.

    Texts that many pairs share are embedded once.

    Parameters
    ----------
    embedder
        Embeds texts that are not cached.
    cache
        Cache in a folder, or None.
    memory_bytes
        Size limit of the vectors in memory; those used longest ago are dropped.
    """

    def __init__(self, embedder: ScoringEmbedder, cache: VectorCache | None, memory_bytes: int) -> None:
        self._embedder = embedder
        self._cache = cache
        self._dimension = embedder.dimension
        self._memory: LRUCache[Vector] = LRUCache(memory_bytes, lambda vector: vector.nbytes)

    def request(self, texts: Iterable[str], earlier: Iterable[VectorRequest] = ()) -> VectorRequest:
        """Look texts up, and prepare those that are missing for the embedder: each is embedded once.

        Parameters
        ----------
        texts
            The texts.
        earlier
            Requests that will be finished before this one. What they compute is not computed again.

        Returns
        -------
        VectorRequest
            Texts on their way to vectors.
        """
        request = VectorRequest(self)
        missing: list[str] = []
        earlier = [other for other in earlier if other.missing]
        for text in dict.fromkeys(texts):
            if (vector := self._memory.get(text)) is not None:
                request.known[text] = vector
            elif (other := next((other for other in earlier if text in other.missing), None)) is not None:
                request.awaited[text] = other
            else:
                missing.append(text)
        if missing and self._cache:
            cached = self._cache.load(missing)
            self._check_lengths(cached)
            self._remember(cached)
            request.known |= cached
            missing = [text for text in missing if text not in cached]
        if missing:
            self._prepare(missing, request)
        return request

    def _prepare(self, texts: list[str], request: VectorRequest) -> None:
        """Prepare texts, in halves if the embedder refuses one: it must not take the others with it."""
        try:
            request.parts.append((texts, self._embedder.prepare(texts)))
            request.missing.update(texts)
        except TextError as error:
            if len(texts) == 1:
                request.errors[texts[0]] = error
                return
            middle = len(texts) // 2
            self._prepare(texts[:middle], request)
            self._prepare(texts[middle:], request)

    def keep(self, vectors: Mapping[str, Vector]) -> None:
        """Put new vectors into the cache and into memory. Raises ModelError if their lengths differ."""
        self._check_lengths(vectors)
        if self._cache:
            self._cache.store(vectors)
        self._remember(vectors)

    def _remember(self, vectors: Mapping[str, Vector]) -> None:
        for text, vector in vectors.items():
            self._memory.put(text, vector)

    def _check_lengths(self, vectors: Mapping[str, Vector]) -> None:
        for length in {len(vector) for vector in vectors.values()}:
            self._dimension = self._dimension or length
            if length != self._dimension:
                raise ModelError(
                    f"embedder {self._embedder.name}: a vector of {length} components after vectors of "
                    f"{self._dimension}: another model needs another `identity`"
                )

    def close(self) -> None:
        """Drop the vectors in memory and close the cache."""
        self._memory.clear()
        if self._cache:
            self._cache.close()
