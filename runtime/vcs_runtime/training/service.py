"""Background scoring: one scorer and one thread for each `ScorerConfig` of this process.

Callers with equal configs share a session, so eight reward threads do not load eight models. Pairs that
arrive while a batch is scored become the next batch: the pairs of many callers are scored together, and a
single caller does not wait for others. A forked child starts without scorers and opens its own, because the
threads of ONNX Runtime do not survive a fork.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.training.deadlines import Clock, settle

LOG = logging.getLogger("vcs_runtime.training")


@dataclass
class _Request:
    """Pairs with the future of their results. A request without options releases the models."""

    pairs: Sequence[Any]
    options: Options | None
    future: Future[list[Result]]
    results: list[Result] = field(default_factory=list)


class _Service:
    """A scorer and its thread. Only this thread uses the scorer."""

    def __init__(self, config: ScorerConfig) -> None:
        self._config = config
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._signatures: dict[Options, str] = {}
        self._logged: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="vcs-scoring", daemon=True)
        self._thread.start()

    def put(self, request: _Request) -> None:
        self._requests.put(request)

    def close(self) -> None:
        """Finish the current block, answer all other requests with an error, and close the scorer."""
        self._closing = True
        self._requests.put(None)
        self._thread.join()

    def failed(self, count: int, options: Options, error: str) -> list[Result]:
        """Results of unscored pairs. They have no signature if no model has been opened yet."""
        return [Result(None, 0, 0, self._signatures.get(options, ""), error=error)] * count

    def _run(self) -> None:
        scorer: Scorer | None = None
        while True:
            batch = [self._requests.get()]
            while not self._requests.empty():  # this thread is the only reader of the queue
                batch.append(self._requests.get())
            for options, group in groupby(filter(None, batch), lambda request: request.options):
                scorer = self._answer(scorer, list(group), options)
            if batch[-1] is None:
                if scorer:
                    scorer.close()
                return
            del batch, group  # or the texts would stay in memory until the next request

    def _answer(
        self, scorer: Scorer | None, requests: list[_Request], options: Options | None
    ) -> Scorer | None:
        """Settle requests with equal options. Returns the scorer, which is opened if necessary."""
        try:
            if options is not None:
                scorer = scorer or Scorer.from_config(self._config)
                self._score(scorer, requests, options)
            else:
                if scorer:
                    scorer.release()
                for request in requests:
                    settle(request.future, [])
        except Exception as error:
            # No exception may stop the training or leave a future open because a score is missing.
            self._log(error)
            for request in requests:
                settle(request.future, self._unscored(request, f"{type(error).__name__}: {error}"))
        return scorer

    def _score(self, scorer: Scorer, requests: list[_Request], options: Options) -> None:
        """Settle each request after its last pair. Requests past their deadline are skipped."""
        self._signatures.setdefault(options, scorer.signature_for(options))

        def items() -> Iterator[tuple[_Request, Any]]:
            for request in requests:
                if self._closing:
                    settle(request.future, self._unscored(request, "the scorer was closed"))
                elif not request.future.done():
                    yield from ((request, pair) for pair in request.pairs)

        blocks = scorer.stream(items(), itemgetter(1), options)
        for (request, _), result, _ in chain.from_iterable(blocks):
            request.results.append(result)
            if len(request.results) == len(request.pairs):
                settle(request.future, request.results)

    def _unscored(self, request: _Request, error: str) -> list[Result]:
        return self.failed(len(request.pairs), request.options, error) if request.options else []

    def _log(self, error: Exception) -> None:
        """Log a failure of the machine or the bundle, with its traceback the first time."""
        new = str(error) not in self._logged
        self._logged.add(str(error))
        LOG.error("nothing was scored: %s: %s", type(error).__name__, error, exc_info=error if new else None)


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
            service.put(_Request(pairs, options, future))
        if deadline_s is not None:
            count, error = len(pairs), f"deadline: not scored within {deadline_s:g} s"
            self._clock.watch(future, deadline_s, lambda: service.failed(count, options, error))
        return future

    def release(self, config: ScorerConfig | None) -> None:
        futures: list[Future[list[Result]]] = []
        with self._lock:
            for service in self._chosen(config).values():
                futures.append(_Future())
                service.put(_Request((), None, futures[-1]))
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


_services = _Services()


def submit(
    config: ScorerConfig, options: Options, pairs: Sequence[Any], deadline_s: float | None = None
) -> Future[list[Result]]:
    """Score pairs in the background.

    Parameters
    ----------
    config
        How the scorer is opened, with absolute paths. Equal configs share a scorer.
    options
        How the pairs are scored.
    pairs
        Pairs `(reference, generated)`.
    deadline_s
        Seconds until the future is done at the latest. None: no limit.

    Returns
    -------
    Future of list of Result
        One Result for each pair, in order. The future never holds an exception: every failure, a missed
        deadline included, is the `error` of each Result.
    """
    return _services.submit(config, options, pairs, deadline_s)


def release(config: ScorerConfig | None = None) -> None:
    """Release the models' memory after all submitted pairs. Vectors stay. None: the models of all scorers."""
    _services.release(config)


def close(config: ScorerConfig | None = None) -> None:
    """Close the scorer after its current block; a later call opens a new one. None: close all scorers."""
    _services.close(config)


def _start_fresh() -> None:
    global _services
    _services = _Services()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_fresh)
atexit.register(close)  # a thread inside ONNX Runtime would crash the process while Python shuts down
