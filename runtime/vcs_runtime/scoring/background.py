"""Background scoring: one scorer and one thread for the requests of many callers.

Requests are scored in turns: each turn takes a share of the pairs of every request that waits. So
the pairs of many callers are scored together, and a small request does not wait for a large one. A
pair that alone takes several turns is scored in a second thread, beside the turns. If nobody waits
for a turn's requests any more, the turn ends after the current batch of a model.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby, takewhile
from operator import itemgetter
from typing import Any, Generic, TypeVar

from vcs_runtime.errors import VcsError
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.preparation import BLOCK_CHARACTERS, GPU_BLOCKS
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.stages import Stopped, stopped_if

R = TypeVar("R")

# Characters of a turn: half a second of work for the default model on two cores; on a GPU two
# blocks.
_TURN = 8_000
_GPU_TURN = GPU_BLOCKS * BLOCK_CHARACTERS
# A pair of more turns is scored beside the turns.
_LARGE = 4


def settle(future: Future[R], result: R) -> None:
    """Set the result of a future that has none yet."""
    with contextlib.suppress(InvalidStateError):  # a deadline has settled it, or the caller left
        future.set_result(result)


@dataclass
class Request(Generic[R]):
    """Pairs, and a future of their converted results."""

    pairs: Sequence[Any]  # at least one
    options: Options
    convert: Callable[[Result, Evidence | None], R]  # called in the scoring thread
    future: Future[list[R]] = field(default_factory=Future)
    converted: list[R] = field(default_factory=list)  # the results so far, in the scoring thread
    begun: bool = False
    aside: bool = False  # its next pair is being scored beside the turns

    def done(self) -> bool:
        """Whether the request is answered, or nobody waits for the answer any more."""
        return self.future.done()

    def fail(self, error: Exception) -> None:
        """Answer a request that could not be scored."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


class BackgroundScorer:
    """A scorer, which the first request opens, and its thread.

    `report` receives failures of the machine and the bundle. Unscorable texts are not reported;
    they become errors of results. With `beside`, a second thread scores large pairs. Without it,
    only one thread uses the scorer.
    """

    def __init__(
        self, config: ScorerConfig, report: Callable[[Exception], None], *, beside: bool = False
    ) -> None:
        self._config = config
        self._report = report
        self._large = ThreadPoolExecutor(1, "vcs-scoring-large") if beside else None
        self._requests: queue.SimpleQueue[Request[Any] | Future[None] | None] = queue.SimpleQueue()
        self._held: dict[int, Request[Any]] = {}
        self._closing = False
        self.scorer: Scorer | None = None
        self._thread = threading.Thread(target=self._run, name="vcs-scoring", daemon=True)
        self._thread.start()

    @property
    def held(self) -> int:
        """Number of requests that wait or are being scored, even if nobody waits for the answer."""
        requests = list(self._held.values())
        return sum(request.begun or not request.done() for request in requests)

    def put(self, request: Request[Any]) -> None:
        """Score the pairs of a request, in turns with other requests."""
        self._held[id(request)] = request
        self._requests.put(request)

    def release(self) -> Future[None]:
        """Release the models' memory after all requests so far. Vectors stay."""
        released: Future[None] = Future()
        self._requests.put(released)
        return released

    def close(self) -> None:
        """Finish the current block, answer all other requests with an error, close the scorer.

        A pair that is scored beside the turns is given up.
        """
        self._closing = True
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        waiting: list[Request[Any] | Future[None] | None] = []
        while True:
            while not self._requests.empty():  # this thread is the only reader of the queue
                waiting.append(self._requests.get())
            waiting = [entry for entry in waiting if entry is None or not _is_over(entry)]
            self._forget_settled()
            # A turn takes the requests up to the next one to release the models, or to close. Such
            # an entry is a turn by itself.
            turn: list[Any] = list(takewhile(_is_request, waiting))
            if not turn:
                turn = waiting[:1]
            here: list[Any] = [entry for entry in turn if not _is_aside(entry)]
            if not here:
                waiting.append(self._requests.get())
                continue
            if here[0] is None:
                if self._large:
                    self._large.shutdown()
                if self.scorer:
                    self.scorer.close()
                return
            for _, entries in groupby(here, _options):
                self._answer(list(entries))
            # The texts would stay in memory until the next request.
            del turn, here, entries

    def _forget_settled(self) -> None:
        for number, request in self._held.copy().items():  # other threads add requests
            if _is_over(request):
                del self._held[number]

    def _answer(self, entries: list[Request[Any] | Future[None]], beside: bool = False) -> None:
        """Settle requests with equal options, or requests to release the models.

        With `beside`, the only entry is a request whose next pair is large.
        """
        requests = [entry for entry in entries if isinstance(entry, Request)]
        try:
            if requests:
                self.scorer = self.scorer or Scorer.from_config(self._config)
                self._score(self.scorer, requests, beside)
            elif self.scorer:
                self.scorer.release()
        except BaseException as failure:
            # A panic of the tokenizer is no Exception, but nobody may wait for ever.
            if isinstance(failure, Exception):
                error = failure
            else:
                error = VcsError(f"{type(failure).__name__}: {failure}")
            # One request may be too large for the memory of a GPU, so each is tried without the
            # others.
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

    def _score_beside(self, request: Request[Any]) -> None:
        """Score the next pair of a request, which is large; then turns go on with the request."""
        self._answer([request], beside=True)
        if self._closing:
            request.fail(VcsError("the scorer was closed"))
        request.aside = False
        woken: Future[None] = Future()
        woken.set_result(None)
        self._requests.put(woken)

    def _score(self, scorer: Scorer, requests: list[Request[Any]], beside: bool) -> None:
        """Score a turn of the requests, and settle those whose last pair has been scored.

        With `beside`, the turn is the next pair of the only request.
        """
        turn = _GPU_TURN if scorer.embedder.device.is_gpu else _TURN
        share = turn // len(requests)
        large: float = _LARGE * turn if self._large else math.inf
        if beside:
            share, large = 1, math.inf

        def items() -> Iterator[tuple[Request[Any], Any]]:
            for request in requests:
                if beside or not request.aside:
                    for pair in self._share(request, share, large):
                        yield request, pair

        def nobody_waits() -> bool:
            if beside:
                return self._closing or requests[0].done()
            return all(request.done() or request.aside for request in requests)

        blocks = scorer.stream(items(), itemgetter(1), requests[0].options)
        with contextlib.suppress(Stopped), stopped_if(nobody_waits):
            for (request, _), result, evidence in chain.from_iterable(blocks):
                request.converted.append(request.convert(result, evidence))
                if len(request.converted) == len(request.pairs):
                    self._held.pop(id(request), None)
                    settle(request.future, request.converted)

    def _share(self, request: Request[Any], characters: int, large: float) -> Iterator[Any]:
        """Yield the next pairs of a request, until they have so many characters.

        A pair of more than `large` characters begins to be scored beside the turns.
        """
        taken = 0
        for pair in request.pairs[len(request.converted) :]:
            if self._closing:
                request.fail(VcsError("the scorer was closed"))
            if request.done() or taken >= characters:
                return
            # An estimate, because a pair that cannot be scored may be anything.
            size = len(str(pair))
            request.begun = True
            if self._large and size > large:
                if not taken:
                    request.aside = True
                    self._large.submit(self._score_beside, request)
                return
            taken += size
            yield pair


def _is_request(entry: Request[Any] | Future[None] | None) -> bool:
    return isinstance(entry, Request)


def _is_over(entry: Request[Any] | Future[None]) -> bool:
    """Whether an entry needs no turn any more, and no thread works on it."""
    return entry.done() and not _is_aside(entry)


def _is_aside(entry: Request[Any] | Future[None] | None) -> bool:
    return isinstance(entry, Request) and entry.aside


def _options(entry: Request[Any] | Future[None] | None) -> Options | None:
    return entry.options if isinstance(entry, Request) else None
