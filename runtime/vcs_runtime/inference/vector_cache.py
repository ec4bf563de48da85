"""A cache of vectors in a folder.

A vector depends on its text, on the weights and on how they are run, but never on a batch. A cached
vector is therefore as good as a new one, and a cache folder can serve several processes and many
runs. Whoever can write to the folder can change scores. A folder that other users can write to is
therefore refused.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcs_numba.jit.owners import is_own, make_folder
from vcs_runtime.errors import CacheError
from vcs_runtime.inference.token_vectors import TokenLayer, TokenRequest, TokenVectors

Vector = npt.NDArray[np.float32]

_FILE = "vectors-3.sqlite"
_DIGEST = 8  # bytes of a digest after each vector
_LOOKUP = 500  # keys of one SELECT: below SQLite's oldest limit on parameters
_WAIT_S, _LOOK_S = 60.0, 0.01  # for another process to finish writing
# Texts with more bytes of token vectors are not cached: 1,300 tokens of the default model's width.
_TOKEN_BYTES = 1 << 20
# The size of a file is checked each time this number of bytes has been written. A file beyond its
# limit is shrunk to this share of the limit.
_LOOK_BYTES, _SHRUNK = 64 << 20, 0.75
_MOST_USED = 100_000  # keys of read vectors, until the file notes that these were used
# Vectors that were used later than so many seconds from now have the time of a wrong clock.
_SKEW_S = 24 * 3600
_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors "
    "(key BLOB PRIMARY KEY, vector BLOB NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID"
)


class VectorCache:
    """An SQLite file of vectors in a folder, to which several processes may write.

    All methods raise CacheError, with the name of the file, if SQLite or the disk fails. `identity`
    separates vectors that must not be mixed. A `dimension` of None allows vectors of any length.
    With a `limit` in bytes, the least recently used vectors are deleted.
    """

    def __init__(
        self, folder: Path, identity: str, dimension: int | None, limit: int | None = None
    ) -> None:
        self.path = Path(folder) / _FILE
        self._identity = identity
        self._dimension = dimension
        self._limit = limit
        self._written = 0
        self._now = int(time.time())
        self._used: set[bytes] = set()  # keys that were read, if the file has a limit
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()  # scoring threads share the connection
        with _forks.lock:
            _forks.caches.add(self)
        with self._errors(), self._lock:
            make_folder(self.path.parent, 0o700)
            if not all(map(is_own, (self.path.parent, self.path))):
                raise OSError(
                    f"other users own or can write to {self.path.parent}: use a folder of your own"
                )
            _need_locks(self.path.parent)
            self._connection()
            self._shrink()

    def load(self, texts: Iterable[str]) -> dict[str, Vector]:
        """Return the cached vectors by text, without vectors whose digest does not match."""
        vectors: dict[str, Vector] = {}
        for text, data in self._load({self._key(text): text for text in texts}):
            vector = np.empty(0, "<f4") if len(data) % 4 else np.frombuffer(data, "<f4")
            if self._dimension in (None, len(vector)):
                vectors[text] = vector
        return vectors

    def store(self, vectors: Mapping[str, Vector]) -> None:
        """Store vectors by text in one transaction."""
        self._store(
            (self._key(text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()
        )

    def load_tokens(self, request: TokenRequest) -> dict[str, TokenVectors]:
        """Return the cached token vectors by text, without those whose digest does not match."""
        keys = {self._key(text, request.layer): text for text in request.texts}
        vectors: dict[str, TokenVectors] = {}
        for text, data in self._load(keys):
            tokens = TokenVectors.from_bytes(data)
            if tokens is not None:
                vectors[text] = tokens
        return vectors

    def store_tokens(self, tokens: Mapping[str, TokenVectors], layer: TokenLayer) -> None:
        """Store token vectors by text in one transaction, but not for texts with too many."""
        self._store(
            (self._key(text, layer), vectors.to_bytes())
            for text, vectors in tokens.items()
            if vectors.nbytes <= _TOKEN_BYTES
        )

    def _load(self, keys: Mapping[bytes, str]) -> list[tuple[str, bytes]]:
        """Return texts with the bytes stored under their keys, if the digest matches."""
        entries: list[tuple[str, bytes]] = []
        with self._errors(), self._lock:
            db = self._connection()
            all_keys = list(keys)
            for start in range(0, len(all_keys), _LOOKUP):
                part = all_keys[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                rows = db.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                for key, blob in rows:
                    if not isinstance(blob, bytes):  # a damaged file may hold other types
                        continue
                    data, digest = blob[:-_DIGEST], blob[-_DIGEST:]
                    if digest != _digest(key, data):
                        continue
                    entries.append((keys[key], data))
                    if self._limit:
                        self._used.add(key)
            if len(self._used) > _MOST_USED:
                self._note_used(db)
        return entries

    def _store(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Store bytes by key, with their digest."""
        rows = [(key, data + _digest(key, data), self._now) for key, data in entries]
        with self._errors(), self._lock:
            with self._connection() as db:
                db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            self._written += sum(len(row[1]) for row in rows)
            if self._written > _LOOK_BYTES:
                self._written = 0
                self._shrink()

    def _shrink(self) -> None:
        """Delete the least recently used vectors, if the file has grown beyond its limit."""
        db = self._connection()
        self._note_used(db)
        if not self._limit:
            return
        size = _size(db)
        while size > self._limit:
            with db:
                rows = db.execute("SELECT COUNT(*) FROM vectors").fetchone()[0]
                excess = max(1, int(rows * (1 - _SHRUNK * self._limit / size)))
                db.execute(
                    "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used <= ?,"
                    " used LIMIT ?)",
                    (time.time() + _SKEW_S, excess),
                )
            size = _size(db)

    def _note_used(self, db: sqlite3.Connection) -> None:
        with db:
            keys = [(self._now, key) for key in self._used]
            db.executemany("UPDATE vectors SET used = ? WHERE key = ?", keys)
        self._used.clear()

    def close(self) -> None:
        """Record which vectors were used, and close the file. A later call opens it again."""
        with self._lock:
            if self._used:
                with self._errors():
                    self._note_used(self._connection())
            self._disconnect()

    def __del__(self) -> None:
        self._disconnect()  # no other thread can use it any more

    def _connection(self) -> sqlite3.Connection:
        """Return the connection, and open it if necessary. The caller holds the lock."""
        if self._db is not None:
            return self._db
        # Create the file only if it is missing: to close an existing one would end this process's
        # locks of it.
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        db = sqlite3.connect(self.path, timeout=_WAIT_S, check_same_thread=False)
        try:
            db.execute("PRAGMA trusted_schema=OFF")
            _write_ahead(db)
            db.execute("PRAGMA synchronous=NORMAL")
            with db:
                db.execute(_TABLE)
            # A view of this name could compute for ever, and a trigger could change stored values.
            contents = db.execute("SELECT type, name FROM sqlite_master").fetchall()
            if contents != [("table", "vectors")]:
                raise sqlite3.DatabaseError("the file is not a vector cache")
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _key(self, text: str, layer: TokenLayer | None = None) -> bytes:
        kind = f"|tokens:{layer.value}" if layer else ""
        return hashlib.sha256(f"{self._identity}{kind}\0{text}".encode()).digest()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise CacheError(f"vector cache {self.path}: {error}") from None


class _Forks:
    """Caches whose connections are closed before a fork, and opened again at their next use.

    SQLite records the locks of a file in the process. A forked child would inherit the locks of
    another thread and wait for ever, and would treat the parent's locks as its own.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.caches: weakref.WeakSet[VectorCache] = weakref.WeakSet()
        self._held = ExitStack()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._begin,
                after_in_parent=self._held.close,
                after_in_child=self._held.close,
            )

    def _begin(self) -> None:
        self._held.enter_context(self.lock)
        for cache in list(self.caches):
            self._held.enter_context(cache._lock)
            with suppress(sqlite3.Error):  # where the disk is full, the next call meets it again
                cache._disconnect()


_forks = _Forks()


def _need_locks(folder: Path) -> None:
    """Raise OSError where files cannot be locked.

    SQLite would wait there, as if another process held the lock.
    """
    with suppress(ImportError), tempfile.TemporaryFile(dir=folder) as file:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX)


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, so that readers continue while one process writes.

    SQLite does not wait for other processes that make this switch at the same time, so this
    function tries again until `_WAIT_S` have passed.
    """
    end = time.monotonic() + _WAIT_S
    while not _switched(db, end):
        time.sleep(_LOOK_S)


def _switched(db: sqlite3.Connection, end: float) -> bool:
    """Switch to a write-ahead log; return False if another process is busy before `end`."""
    try:
        db.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
            raise
        return False
    return True


def _size(db: sqlite3.Connection) -> int:
    """Return the bytes of a file's used pages."""

    def value(name: str) -> int:
        return int(db.execute(f"PRAGMA {name}").fetchone()[0])

    return (value("page_count") - value("freelist_count")) * value("page_size")


def _digest(key: bytes, vector: bytes) -> bytes:
    """Return a digest of a vector and its key.

    The digest reveals a flipped bit, which must not change a score.
    """
    return hashlib.blake2b(vector, digest_size=_DIGEST, key=key).digest()
