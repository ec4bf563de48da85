"""Vectors that are kept: in memory while a scorer is open, and in a folder when one is given.

A vector depends on its text, the weights, and how they are run, never on a batch; so a kept one is as good as
a fresh one, and a cache folder may serve several processes and many runs.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import CacheError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.util.lru import LRUCache

Vector = npt.NDArray[np.float32]

_FILE = "vectors-1.sqlite"
_LOOKUP = 500  # keys of one SELECT: below SQLite's oldest limit on parameters
_WAIT_S = 60.0  # for another process to finish writing


class VectorCache:
    """An SQLite file of vectors in a folder, safe with several processes writing.

    `identity` tells apart what must not be mixed: weights, precision, engine, window policy.
    Raises CacheError, naming the file, wherever SQLite or the disk refuses.
    """

    def __init__(self, folder: Path, identity: str, dimension: int) -> None:
        self.path = Path(folder) / _FILE
        self._identity = identity
        self._dimension = dimension
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Scoring threads share the connection; `_lock` keeps them apart.
            self._db = sqlite3.connect(self.path, timeout=_WAIT_S, check_same_thread=False)
            self._lock = threading.Lock()
            self._db.execute("PRAGMA journal_mode=WAL")  # readers go on while one process writes
            self._db.execute("PRAGMA synchronous=NORMAL")
            with self._db:
                self._db.execute(
                    "CREATE TABLE IF NOT EXISTS vectors "
                    "(key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
                )

    def load(self, texts: Iterable[str]) -> dict[str, Vector]:
        """The vectors of those `texts` that the cache holds. One that is not a unit vector is passed over."""
        keys = {self._key(text): text for text in texts}
        found: dict[str, Vector] = {}
        with self._errors(), self._lock:
            wanted = list(keys)
            for start in range(0, len(wanted), _LOOKUP):
                part = wanted[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                rows = self._db.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                for key, blob in rows:
                    vector = np.frombuffer(blob, "<f4") if len(blob) == 4 * self._dimension else None
                    if vector is not None and abs(float(vector @ vector) - 1.0) < 1e-3:
                        found[keys[key]] = vector
        return found

    def store(self, vectors: Mapping[str, Vector]) -> None:
        """Keep `vectors`, in one transaction."""
        rows = [(self._key(text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        with self._errors(), self._lock, self._db:
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._identity}\0{text}".encode()).digest()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise CacheError(f"vector cache {self.path}: {error}") from None


class VectorStore:
    """What a scorer asks for vectors: memory first, then the cache folder if there is one, then the embedder.

    The memory keeps the vectors used last, up to `memory_bytes`: what many pairs share is embedded once.
    """

    def __init__(self, embedder: Embedder, cache: VectorCache | None, memory_bytes: int) -> None:
        self._embedder = embedder
        self._cache = cache
        self._memory: LRUCache[Vector] = LRUCache(memory_bytes, lambda vector: vector.nbytes)

    def get(self, texts: Iterable[str]) -> dict[str, Vector]:
        """The unit vectors of `texts`, float32 `(dimension,)` each. Every missing text is embedded once."""
        vectors: dict[str, Vector] = {}
        missing: list[str] = []
        for text in dict.fromkeys(texts):
            if (vector := self._memory.get(text)) is not None:
                vectors[text] = vector
            else:
                missing.append(text)
        if missing:
            fresh = self._cache.load(missing) if self._cache else {}
            missing = [text for text in missing if text not in fresh]
            if missing:
                # Rows are copied: a view would keep the whole batch in memory for as long as one row lives.
                embedded = {
                    text: row.copy() for text, row in zip(missing, self._embedder.embed(missing), strict=True)
                }
                if self._cache:
                    self._cache.store(embedded)
                fresh |= embedded
            vectors |= fresh
            for text, vector in fresh.items():
                self._memory.put(text, vector)
        return vectors

    def close(self) -> None:
        """Drop the memory and close the cache."""
        self._memory.clear()
        if self._cache:
            self._cache.close()


def cache_identity(embedder: Embedder) -> str:
    """What a cached vector is bound to besides its text."""
    return f"{embedder.hash}|{embedder.device.provider_name}"
