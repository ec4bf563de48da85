"""Stages of a job that work at the same time, in threads ahead of the caller.

Items stay in order, and the caller takes the results as from a generator. An error of a stage is
raised after the results before it. When the caller stops, by an exception or by closing the
generator, the threads end after the current item, or where its work calls `check_stopped`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_END: Any = object()
_STOPPED: Final[ContextVar[tuple[Callable[[], bool], ...]]] = ContextVar("stopped", default=())


class Stopped(Exception):
    """The caller of a stage has gone, and nobody waits for its results."""


def check_stopped() -> None:
    """Raise Stopped if the caller of this stage has gone, or a block of `stopped_if` says so."""
    if any(has_stopped() for has_stopped in _STOPPED.get()):
        raise Stopped


@contextmanager
def stopped_if(has_stopped: Callable[[], bool]) -> Iterator[None]:
    """Let `check_stopped` raise Stopped in the block, and in its stages, if this returns True."""
    token = _STOPPED.set((*_STOPPED.get(), has_stopped))
    try:
        yield
    finally:
        _STOPPED.reset(token)


def ahead(items: Iterable[T], count: int = 1) -> Generator[T, None, None]:
    """Prefetch up to `count` items in a thread: they must not depend on what the caller does."""
    iterator = iter(items)
    with _threads(1) as submit:
        upcoming = deque(submit(next, iterator, _END) for _ in range(count))
        while (item := upcoming.popleft().result()) is not _END:
            upcoming.append(submit(next, iterator, _END))
            yield item


def in_order(
    function: Callable[[T], R], items: Iterable[T], threads: int = 1
) -> Generator[R, None, None]:
    """Yield `function(item)` for each item, in order.

    One thread prepares the items, `threads` others call the function, and the caller works on the
    results. Buffers `threads + 1` results, so that no thread waits if its stage is slow once.
    """
    with (
        _threads(threads) as submit,
        closing(ahead((submit(function, item) for item in items), threads + 1)) as calls,
    ):
        for call in calls:
            yield call.result()


@contextmanager
def _threads(count: int) -> Iterator[Callable[..., Future[Any]]]:
    """Yield a function that calls another one in a thread, in a copy of the caller's context."""
    stop = threading.Event()
    context = copy_context()
    context.run(_STOPPED.set, (*_STOPPED.get(), stop.is_set))
    pool = ThreadPoolExecutor(count, thread_name_prefix="vcs-stage")
    try:
        # Two threads cannot be in one context at a time.
        yield lambda function, *arguments: pool.submit(context.copy().run, function, *arguments)
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
