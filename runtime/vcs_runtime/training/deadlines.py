"""Deadlines of futures: one thread settles late futures, however busy the thread that works on them is."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from vcs_runtime.scoring.background import settle

T = TypeVar("T")


class Clock:
    """Settles futures that are not done in time. The thread starts with the first deadline."""

    def __init__(self) -> None:
        # The references are weak: a future that is done and forgotten should not stay until its deadline.
        self._entries: list[tuple[float, int, weakref.ref[Future[Any]], Callable[[], Any]]] = []
        self._numbers = itertools.count()  # entries with equal deadlines must not be compared by their future
        self._changed = threading.Condition()
        self._running = False

    def watch(self, future: Future[T], seconds: float, late: Callable[[], T]) -> None:
        """Settle `future` with `late()` if it is not done within `seconds` from now."""
        with self._changed:
            entry = (time.monotonic() + seconds, next(self._numbers), weakref.ref(future), late)
            heapq.heappush(self._entries, entry)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="vcs-deadlines", daemon=True).start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._entries or (wait := self._entries[0][0] - time.monotonic()) > 0:
                    self._changed.wait(min(wait, threading.TIMEOUT_MAX) if self._entries else None)
                _, _, weak, late = heapq.heappop(self._entries)
            if (future := weak()) is not None:
                settle(future, late())
            del future  # or it would live until the next deadline
