"""Work on all cores: Python threads over kernels that release the GIL.

Not Numba's own parallel layers: one of them may not be entered by two threads at once, another aborts in a
forked child. A score in a data loader's worker, after a score in its parent, has to work.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vcs_numba.jit import numba_config

_pool: ThreadPoolExecutor | None = None
_making = threading.Lock()


def thread_count() -> int:
    """Threads a call may use: the cores this process may run on, or NUMBA_NUM_THREADS if that is set."""
    return int(numba_config.NUMBA_NUM_THREADS)


def _forget_pool() -> None:
    """In a forked child: the pool's threads stayed in the parent, and a lock may have been held."""
    global _pool, _making
    _pool = None
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _submit(work: Callable[[], None]) -> Future[None] | None:
    """Hands `work` to the pool; None if there can be no more threads (the interpreter is shutting down)."""
    global _pool
    try:
        with _making:
            if _pool is None:
                _pool = ThreadPoolExecutor(max(thread_count() - 1, 1), thread_name_prefix="vcs_numba")
            pool = _pool
        return pool.submit(work)
    except RuntimeError:
        return None


def for_each(count: int, work: Callable[[int], Any]) -> None:
    """Calls `work(0)` to `work(count - 1)`, in any order, on several threads; the calling thread takes part.

    Every `work(i)` must write to places of its own, so that the result depends on neither order nor threads.
    """
    helpers = min(thread_count(), count) - 1
    if helpers <= 0:
        for i in range(count):
            work(i)
        return
    waiting = deque(range(count))

    def take_part() -> None:
        while True:
            try:
                i = waiting.popleft()
            except IndexError:
                return
            work(i)

    futures = [_submit(take_part) for _ in range(helpers)]
    try:
        take_part()
    finally:
        waiting.clear()
        for future in futures:
            # Work that has not begun has nothing left to do: not waiting for it keeps calls from a pool
            # thread, and many calls at once, from waiting for each other.
            if future is not None and not future.cancel():
                future.result()
