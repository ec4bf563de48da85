"""Work on all cores: Python threads over kernels that release the GIL.

Numba's parallel layers are not used: two threads may not enter one of them at once, and another
aborts in a forked child. A worker of a data loader must be able to score after its parent has.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vcs_numba.jit.kernel import numba_config

_pool: ThreadPoolExecutor | None = None
_making = threading.Lock()


def thread_count() -> int:
    """Return how many threads a call may use: this process's cores, or NUMBA_NUM_THREADS."""
    return int(numba_config.NUMBA_NUM_THREADS)


def _forget_pool() -> None:
    """Drop the pool in a forked child: its threads stayed in the parent, perhaps with a lock."""
    global _pool, _making
    _pool = None
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _submit(work: Callable[[], None]) -> Future[None] | None:
    """Submit `work` to the pool; None if the interpreter is shutting down."""
    global _pool
    try:
        with _making:
            if _pool is None:
                _pool = ThreadPoolExecutor(
                    max(thread_count() - 1, 1), thread_name_prefix="vcs_numba"
                )
            pool = _pool
        return pool.submit(work)
    except RuntimeError:
        return None


def for_each(count: int, work: Callable[[int], Any]) -> None:
    """Call `work(0)` to `work(count - 1)`, in any order, on several threads and this one.

    Calls must not write to the same places, so that the result depends on neither order nor
    threads. An exception in a call reaches the caller, and calls that have not begun are dropped.
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
            # A future that has not begun has nothing left to do. Cancelling it keeps calls from a
            # pool thread, and many calls at once, from waiting for each other.
            if future is not None and not future.cancel():
                future.result()
