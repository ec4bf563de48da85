"""Background scoring: one scorer and one thread for each `ScorerConfig` of this process.

Callers with equal configs share a session, so eight reward threads do not load eight models. Pairs
that arrive while a batch is scored become the next batch: the pairs of many callers are scored
together, and a single caller does not wait for others. A forked child starts without scorers and
opens its own, because the threads of ONNX Runtime do not survive a fork.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from vcs_runtime.errors import VcsError
from vcs_runtime.scoring.background import BackgroundScorer, Request, settle
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Evidence, Result

T = TypeVar("T")


class Clock:
    """Settles futures that are not done in time. Its thread starts with the first deadline."""

    def __init__(self) -> None:
        # The references are weak: a future that is done and forgotten should not stay until its
        # deadline.
        self._entries: list[tuple[float, int, weakref.ref[Future[Any]], Callable[[], Any]]] = []
        # Entries with equal deadlines must not be compared by their future.
        self._numbers = itertools.count()
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
                while self._seconds_to_wait() > 0:
                    self._changed.wait(self._seconds_to_wait())
                _, _, weak, late = heapq.heappop(self._entries)
            future = weak()
            if future is not None:
                settle(future, late())
            del future  # or it would live until the next deadline

    def _seconds_to_wait(self) -> float:
        """Return the time until the next deadline, at most the longest that a thread may wait."""
        if not self._entries:
            return threading.TIMEOUT_MAX
        return min(self._entries[0][0] - time.monotonic(), threading.TIMEOUT_MAX)


LOG = logging.getLogger("vcs_runtime.training")


class _Service(BackgroundScorer):
    """A background scorer whose failures become errors of results."""

    def __init__(self, config: ScorerConfig) -> None:
        self._signatures: dict[Options, str] = {}
        self._logged: set[str] = set()
        super().__init__(config, self._log)

    def failed(self, count: int, options: Options, error: str) -> list[Result]:
        """Return results of unscored pairs; without a signature if no model has been opened."""
        if self.scorer and options not in self._signatures:
            self._signatures[options] = self.scorer.signature_for(options)
        return [Result(None, 0, 0, self._signatures.get(options, ""), error=error)] * count

    def _log(self, error: Exception) -> None:
        """Log a failure of the machine or the bundle, with its traceback the first time."""
        new = str(error) not in self._logged
        self._logged.add(str(error))
        LOG.error(
            "nothing was scored: %s: %s",
            type(error).__name__,
            error,
            exc_info=error if new else None,
        )


@dataclass(kw_only=True)
class _Request(Request[Result]):
    """A request whose failures become results with an error once the models have been open."""

    service: _Service
    future: Future[list[Result]]

    def fail(self, error: Exception) -> None:
        """Answer with results that contain the error.

        If no model could ever be opened, the answer is the error itself.
        """
        if self.service.scorer is None:
            super().fail(error)
            return
        reason = str(error) if type(error) is VcsError else f"{type(error).__name__}: {error}"
        settle(self.future, self.service.failed(len(self.pairs), self.options, reason))


class _Services:
    """The services of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = Clock()
        self._running: dict[ScorerConfig, _Service] = {}

    def submit(
        self, config: ScorerConfig, options: Options, pairs: Sequence[Any], deadline_s: float | None
    ) -> Future[list[Result]]:
        future: Future[list[Result]] = _Future()
        if not pairs:
            future.set_result([])
            return future
        with self._lock:  # so that no request is queued after the last one of `close`
            service = self._running.get(config) or _Service(config)
            self._running[config] = service
            request = _Request(pairs, options, _result, service=service, future=future)
            service.put(request)
        if deadline_s is not None and math.isfinite(deadline_s):
            count, error = len(pairs), f"deadline: not scored within {deadline_s:g} s"
            results = request.converted  # not the request, whose texts would stay in memory

            def late() -> list[Result]:
                scored = results.copy()
                return scored + service.failed(count - len(scored), options, error)

            self._clock.watch(future, deadline_s, late)
        return future

    def release(self, config: ScorerConfig | None) -> None:
        with self._lock:
            futures = [service.release() for service in self._chosen(config).values()]
        for future in futures:
            future.result()

    def close(self, config: ScorerConfig | None) -> None:
        with self._lock:
            closing = self._chosen(config)
            for key in closing:
                del self._running[key]
        for service in closing.values():
            service.close()

    def _chosen(self, config: ScorerConfig | None) -> dict[ScorerConfig, _Service]:
        return {key: service for key, service in self._running.items() if config in (None, key)}


class _Future(Future[list[Result]]):
    """A future that cannot be cancelled: its deadline or `close` ends it."""

    def cancel(self) -> bool:
        return False


def _result(result: Result, _: Evidence | None) -> Result:
    return result


_services = _Services()


def submit(
    config: ScorerConfig, options: Options, pairs: Sequence[Any], deadline_s: float | None = None
) -> Future[list[Result]]:
    """Score pairs `(reference, generated)` in the background; equal configs share a scorer.

    A failure becomes the `error` of each Result, and a missed deadline the error of each pair that
    has not been scored by then. Only if the models cannot be opened the first time, the future
    holds that exception, because no later step would succeed.
    """
    return _services.submit(config, options, pairs, deadline_s)


def release(config: ScorerConfig | None = None) -> None:
    """Release the models' memory after all submitted pairs.

    Vectors stay. None: the models of all scorers.
    """
    _services.release(config)


def close(config: ScorerConfig | None = None) -> None:
    """Close the scorer after its current block; a later call opens a new one.

    None: close all scorers.
    """
    _services.close(config)


def _start_fresh() -> None:
    global _services
    _services = _Services()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_fresh)
# A thread inside ONNX Runtime would crash the process while Python shuts down.
atexit.register(close)
