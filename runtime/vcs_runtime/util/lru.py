"""What was computed lately, by its text, within a bound of bytes: the oldest goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")
# What Python needs to hold an entry: its key's and value's headers, its place in the table.
_OVERHEAD = 300


class Recent(Generic[V]):
    """Values by their text. `size` says how many bytes a value takes. May be used from several threads."""

    def __init__(self, bound: int, size: Callable[[V], int]) -> None:
        self._free = bound
        self._size = size
        self._entries: OrderedDict[str, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> V | None:
        """The value of a text, which counts as used now; None if it is not there (any more)."""
        with self._lock:
            if (value := self._entries.get(text)) is not None:
                self._entries.move_to_end(text)
            return value

    def put(self, text: str, value: V) -> None:
        """Keep a value; what was used longest ago makes room."""
        with self._lock:
            if text in self._entries:  # another thread was faster
                return
            self._entries[text] = value
            self._free -= self._footprint(text, value)
            while self._free < 0:
                self._free += self._footprint(*self._entries.popitem(last=False))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._free += sum(self._footprint(*entry) for entry in self._entries.items())
            self._entries.clear()

    def _footprint(self, text: str, value: V) -> int:
        return self._size(value) + len(text) + _OVERHEAD
