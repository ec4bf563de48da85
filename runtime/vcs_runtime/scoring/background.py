"""Background scoring: one scorer and one thread for the requests of many callers.

Pairs that arrive while a batch is scored become the next batch: the pairs of many callers are scored
together, and a single caller does not wait for others.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

from vcs_runtime.errors import VcsError
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.scorer import Scorer

R = TypeVar("R")


def settle(future: Future[R], result: R) -> None:
    """Set the result of a future that has none yet."""
    with contextlib.suppress(InvalidStateError):  # a deadline, or who gave up waiting, was faster
        future.set_result(result)


@dataclass
class Request(Generic[R]):
    """Pairs, and the future of what is made of their results."""

    pairs: Sequence[Any]  # at least one
    options: Options
    convert: Callable[[Result, Evidence | None], R]  # called in the scoring thread
    future: Future[list[R]] = field(default_factory=Future)

    def fail(self, error: Exception) -> None:
        """Answer a request that could not be scored."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


class BackgroundScorer:
    """A scorer and its thread. Only this thread uses the scorer, which the first request opens.

    `report` receives failures of the machine and the bundle. Unscorable texts are not reported; they become
    errors of results.
    """

    def __init__(self, config: ScorerConfig, report: Callable[[Exception], None]) -> None:
        self._config = config
        self._report = report
        self._requests: queue.SimpleQueue[Request[Any] | Future[None] | None] = queue.SimpleQueue()
        self._closing = False
        self.scorer: Scorer | None = None
        self._thread = threading.Thread(target=self._run, name="vcs-scoring", daemon=True)
        self._thread.start()

    def put(self, request: Request[Any]) -> None:
        """Score the pairs of a request after all that were put before."""
        self._requests.put(request)

    def release(self) -> Future[None]:
        """Release the models' memory after all requests so far. Vectors stay."""
        released: Future[None] = Future()
        self._requests.put(released)
        return released

    def close(self) -> None:
        """Finish the current block, answer all other requests with an error, and close the scorer."""
        self._closing = True
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch = [self._requests.get()]
            while not self._requests.empty():  # this thread is the only reader of the queue
                batch.append(self._requests.get())
            waiting = [entry for entry in batch if entry is not None]
            for _, entries in groupby(waiting, _options):
                self._answer(list(entries))
            if batch[-1] is None:
                if self.scorer:
                    self.scorer.close()
                return
            del batch, waiting, entries  # or the texts would stay in memory until the next request

    def _answer(self, entries: list[Request[Any] | Future[None]]) -> None:
        """Settle requests with equal options, or requests to release the models."""
        requests = [entry for entry in entries if isinstance(entry, Request)]
        try:
            if requests:
                self.scorer = self.scorer or Scorer.from_config(self._config)
                self._score(self.scorer, requests)
            elif self.scorer:
                self.scorer.release()
        except (
            BaseException
        ) as failure:  # a panic of the tokenizer is one, and all who wait would wait for ever
            error = (
                failure
                if isinstance(failure, Exception)
                else VcsError(f"{type(failure).__name__}: {failure}")
            )
            # One request may be too large for the memory of a GPU, so each is tried without the others.
            if self.scorer and len(requests) > 1:
                for request in requests:
                    self._answer([request])
                return
            self._report(error)
            for request in requests:
                request.fail(error)
        for entry in entries:
            if not isinstance(entry, Request):
                settle(entry, None)

    def _score(self, scorer: Scorer, requests: list[Request[Any]]) -> None:
        """Settle each request after its last pair."""
        made: dict[int, list[Any]] = {id(request): [] for request in requests}

        def items() -> Iterator[tuple[Request[Any], Any]]:
            for request in requests:
                if self._closing:
                    request.fail(VcsError("the scorer was closed"))
                elif not request.future.done():
                    yield from ((request, pair) for pair in request.pairs)

        blocks = scorer.stream(items(), itemgetter(1), requests[0].options)
        for (request, _), result, evidence in chain.from_iterable(blocks):
            made[id(request)].append(request.convert(result, evidence))
            if len(made[id(request)]) == len(request.pairs):
                settle(request.future, made.pop(id(request)))


def _options(entry: Request[Any] | Future[None]) -> Options | None:
    return entry.options if isinstance(entry, Request) else None
