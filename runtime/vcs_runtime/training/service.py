"""The scorers of a process that trains: opened when first needed, shared, each with a thread of its own.

Whoever asks with the same `Opening` shares one session: eight reward threads do not load eight models. What
arrives while a batch is scored becomes the next batch: many callers with a pair each are scored together, and
one alone does not wait for others. A forked child inherits none of it and opens its own: the threads of ONNX
Runtime would be missing there.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.training.deadlines import Clock, settle

LOG = logging.getLogger("vcs_runtime.training")


@dataclass(frozen=True)
class Opening:
    """The arguments of `Scorer.open`, as plain values: they are compared, hashed and pickled."""

    bundle: str = "default"
    device: str = "auto"
    cache: str | None = None
    threads: int | None = None
    memory_mb: int = 256
    segmenter: str = "auto"
    gpu_mem_gb: float | None = None

    def open(self) -> Scorer:
        return Scorer.open(
            self.bundle, self.device, cache=self.cache, threads=self.threads, memory_mb=self.memory_mb,
            segmenter=self.segmenter, gpu_mem_gb=self.gpu_mem_gb,
        )  # fmt: skip


@dataclass(frozen=True)
class _Request:
    """Pairs to score and the future of their results; without options: release the models."""

    pairs: Sequence[Any]
    options: Options | None
    future: Future[list[Result]]


class _Service:
    """A scorer and the thread that works with it. The thread alone holds the scorer."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._signatures: dict[Options, str] = {}
        self._told: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="vcs-scoring", daemon=True)
        self._thread.start()

    def put(self, request: _Request) -> None:
        self._requests.put(request)

    def close(self) -> None:
        """Finish the block in flight, answer the rest with an error, give everything back."""
        self._closing = True
        self._requests.put(None)
        self._thread.join()

    def failed(self, count: int, options: Options, error: str) -> list[Result]:
        """Results of pairs that were not scored; without a signature if no model was opened so far."""
        return [Result(None, 0, 0, self._signatures.get(options, ""), error=error)] * count

    def _run(self) -> None:
        scorer: Scorer | None = None
        while True:
            batch = [self._requests.get()]
            while not self._requests.empty():  # nobody else takes from it
                batch.append(self._requests.get())
            for options, group in groupby(filter(None, batch), lambda request: request.options):
                scorer = self._answer(scorer, list(group), options)
            if batch[-1] is None:
                if scorer:
                    scorer.close()
                return
            del batch, group  # or the last texts would stay until the next come

    def _answer(
        self, scorer: Scorer | None, requests: list[_Request], options: Options | None
    ) -> Scorer | None:
        """Settle requests with the same options; returns the scorer, opened if it was not."""
        try:
            if options is not None:
                scorer = scorer or self._opening.open()
                self._score(scorer, requests, options)
            else:
                if scorer:
                    scorer.release()
                for request in requests:
                    settle(request.future, [])
        except Exception as error:
            # Whatever it is: no training should stop, no future stay open, for the lack of a score.
            self._tell(error)
            for request in requests:
                settle(request.future, self._unscored(request, f"{type(error).__name__}: {error}"))
        return scorer

    def _score(self, scorer: Scorer, requests: list[_Request], options: Options) -> None:
        """Settle requests, each when its last pair is scored. Those that are late already are skipped."""
        self._signatures.setdefault(options, scorer.signature_for(options))
        waiting: deque[_Request] = deque()

        def pairs() -> Iterator[Any]:
            for request in requests:
                if self._closing:
                    settle(request.future, self._unscored(request, "the scorer was closed"))
                elif not request.future.done():
                    waiting.append(request)
                    yield from request.pairs

        done: list[Result] = []
        for result in scorer.iter_scores(pairs(), options):
            done.append(result)
            if len(done) == len(waiting[0].pairs):
                settle(waiting.popleft().future, done)
                done = []

    def _unscored(self, request: _Request, error: str) -> list[Result]:
        return self.failed(len(request.pairs), request.options, error) if request.options else []

    def _tell(self, error: Exception) -> None:
        """Log what went wrong with machine or bundle: at length when it is new."""
        new = str(error) not in self._told
        self._told.add(str(error))
        LOG.error("nothing was scored: %s: %s", type(error).__name__, error, exc_info=error if new else None)


class _Services:
    """The services of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = Clock()
        self._running: dict[Opening, _Service] = {}

    def submit(
        self, opening: Opening, options: Options, pairs: Sequence[Any], deadline_s: float | None
    ) -> Future[list[Result]]:
        future: Future[list[Result]] = _Future()
        if not pairs:
            future.set_result([])
            return future
        with self._lock:  # so that nothing is put behind the last word of `close`
            service = self._running.get(opening) or _Service(opening)
            self._running[opening] = service
            service.put(_Request(pairs, options, future))
        if deadline_s is not None:
            count, error = len(pairs), f"deadline: not scored within {deadline_s:g} s"
            self._clock.watch(future, deadline_s, lambda: service.failed(count, options, error))
        return future

    def release(self, opening: Opening | None) -> None:
        futures: list[Future[list[Result]]] = []
        with self._lock:
            for service in self._chosen(opening).values():
                futures.append(_Future())
                service.put(_Request((), None, futures[-1]))
        for future in futures:
            future.result()

    def close(self, opening: Opening | None) -> None:
        with self._lock:
            closing = self._chosen(opening)
            for key in closing:
                del self._running[key]
        for service in closing.values():
            service.close()

    def _chosen(self, opening: Opening | None) -> dict[Opening, _Service]:
        return {key: service for key, service in self._running.items() if opening in (None, key)}


class _Future(Future[list[Result]]):
    """Cannot be cancelled: it has a deadline, and `close` ends all."""

    def cancel(self) -> bool:
        return False


_services = _Services()


def submit(
    opening: Opening, options: Options, pairs: Sequence[Any], deadline_s: float | None = None
) -> Future[list[Result]]:
    """Score pairs in the background: a future of a Result a pair, in order. It never holds an exception: what
    went wrong, the deadline included, is the `error` of each Result."""
    return _services.submit(opening, options, pairs, deadline_s)


def release(opening: Opening | None = None) -> None:
    """When all is scored that was submitted: give the models' memory back; vectors are kept. None: of all."""
    _services.release(opening)


def close(opening: Opening | None = None) -> None:
    """Give everything back, when the block in flight is scored. What is asked later opens anew. None: all."""
    _services.close(opening)


def _start_anew() -> None:
    global _services
    _services = _Services()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
atexit.register(close)  # a thread inside ONNX Runtime while Python goes down would take the process with it
