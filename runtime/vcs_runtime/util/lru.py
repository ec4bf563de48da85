"""A thread-safe LRU cache with a size limit in bytes."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

V = TypeVar("V")
# Bytes of an entry beside its key: the header of the value, and the entry's place in the table.
_OVERHEAD = 251


class LRUCache(Generic[V]):
    """A cache of values by text, of at most `limit` bytes; `size` returns the bytes of a value."""

    def __init__(self, limit: int, size: Callable[[V], int]) -> None:
        self._limit = self._free = limit
        self._size = size
        self._entries: OrderedDict[str, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> V | None:
        """Return the value of a text, which counts as used now, or None."""
        return self.get_all((text,)).get(text)

    def get_all(self, texts: Iterable[str]) -> dict[str, V]:
        """Return the stored values by text, as `get` does."""
        with self._lock:
            values = {}
            for text in texts:
                value = self._entries.get(text)
                if value is not None:
                    values[text] = value
            for text in values:
                self._entries.move_to_end(text)
            return values

    def put(self, text: str, value: V) -> None:
        """Store a value, unless the text has one, and drop old entries beyond the limit."""
        self.put_all([(text, value)])

    def put_all(self, values: Iterable[tuple[str, V]]) -> None:
        """Store values with their texts, as `put` does.

        A cache without room does not ask `values` for any.
        """
        if self._limit <= 0:
            return
        with self._lock:
            for text, value in values:
                if text not in self._entries:  # or another thread was faster
                    self._entries[text] = value
                    self._free -= self._footprint(text, value)
            while self._free < 0 and self._entries:
                self._free += self._footprint(*self._entries.popitem(last=False))

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._entries.clear()
            self._free = self._limit

    def _footprint(self, text: str, value: V) -> int:
        return self._size(value) + sys.getsizeof(text) + _OVERHEAD
