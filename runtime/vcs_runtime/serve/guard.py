"""Middleware for every request: authentication, request counts and unexpected exceptions."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vcs_runtime.util.printable import printable

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts of requests and pairs. Only the event loop's thread uses them."""

    def __init__(self, queue_length: Callable[[], int]) -> None:
        self._queue_length = queue_length
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self.pairs = 0
        self.errors = 0

    def answered(self, path: str, status: int, seconds: float, *, scoring: bool) -> None:
        """Count an answered request; also its seconds if it returned scores."""
        self._requests[path, status] += 1
        if scoring:
            self._buckets[bisect_left(_BUCKETS, seconds)] += 1
            self._seconds += seconds

    def text(self) -> str:
        """Return all counters."""
        lines = [
            *_head("vcs_requests_total", "counter", "Answered requests."),
            *(
                f'vcs_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ),
            *_head("vcs_pairs_total", "counter", "Pairs of answered requests."),
            f"vcs_pairs_total {self.pairs}",
            *_head("vcs_pair_errors_total", "counter", "Pairs that could not be scored."),
            f"vcs_pair_errors_total {self.errors}",
            *_head("vcs_queue_length", "gauge", "Requests that wait or are being scored."),
            f"vcs_queue_length {self._queue_length()}",
            *_head(
                "vcs_request_seconds",
                "histogram",
                "Seconds of requests for scores and explanations.",
            ),
        ]
        totals = list(accumulate(self._buckets))
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), totals, strict=True):
            lines.append(f'vcs_request_seconds_bucket{{le="{bound}"}} {count}')
        lines += [
            f"vcs_request_seconds_sum {self._seconds}",
            f"vcs_request_seconds_count {totals[-1]}",
        ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


#: Paths that return scores.
SCORING = ("/score", "/explain")
#: Paths that need no token, because their answers contain nothing that clients sent.
OPEN = ("/", "/docs", "/health", "/livez", "/openapi.json", "/readyz")
_KNOWN = (*SCORING, *OPEN, "/metrics")


class Guard:
    """Middleware: token check, counts of answers, one-line reports of unexpected exceptions."""

    def __init__(
        self, app: ASGIApp, token: bytes | None, metrics: Metrics, report: Callable[[str], None]
    ) -> None:
        self._app = app
        self._token = token
        self._metrics = metrics
        self._report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, even if the application raises an exception."""
        started = time.perf_counter()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        path = scope["path"] if scope["path"] in _KNOWN else "other"
        try:
            app = self._app if self._may(path, scope) else _unauthorised()
            await app(scope, receive, counted)
        except asyncio.CancelledError:  # the time that a stopping server has is over
            if not status:
                stopped = answer(503, error("the server was stopped"))
                await stopped(scope, receive, counted)
        except Exception as exception:
            name = type(exception).__name__
            self._report(f"{path}: unexpected {name}: {exception}")
            if not status:
                failed = answer(500, error(f"unexpected {name}"))
                await failed(scope, receive, counted)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.answered(path, status, seconds, scoring=path in SCORING and status == 200)

    def _may(self, path: str, scope: Scope) -> bool:
        if self._token is None or path in OPEN:
            return True
        sent = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, token = sent.partition(b" ")
        # In constant time: the time of the answer must not reveal how much of a guess was right.
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"


def _unauthorised() -> Response:
    body = error("send the server's token in the header Authorization: Bearer TOKEN")
    return answer(401, body, {"WWW-Authenticate": "Bearer"})


def answer(status: int, value: Any, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a value as JSON, in ASCII: an id may hold a lone surrogate."""
    body = json.dumps(value, allow_nan=False)
    return Response(
        body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json"
    )


def error(sentence: str) -> dict[str, str]:
    """Return the body of an answer that refuses a request.

    Text quoted from the request is escaped.
    """
    return {"error": printable(sentence)}
