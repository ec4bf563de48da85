"""Work of other threads that a fork of the process waits for."""

from __future__ import annotations

import os
import threading


class Unforkable:
    """Work in which a library holds locks of its own. A fork waits until no thread does it.

    A forked child has none of its parent's other threads, but all of their locks, and would wait for ever.
    Any number of threads may do the work at once, each in a `with` block.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        if hasattr(os, "register_at_fork"):
            release = self._changed.release
            os.register_at_fork(before=self._begin, after_in_parent=release, after_in_child=release)

    def __enter__(self) -> None:
        with self._changed:
            self._number += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._number -= 1
            self._changed.notify_all()

    def _begin(self) -> None:
        """Keep others from beginning, and wait until the last one has ended."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._number)


#: Opening a model in ONNX Runtime.
OPENING = Unforkable()
