"""Middleware for every request: authentication, request counts and unexpected exceptions."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
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
        """Count an answered request; its seconds if it was one for scores."""
        self._requests[path, status] += 1
        if scoring:
            self._buckets[sum(seconds > bound for bound in _BUCKETS)] += 1
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
            *_head("vcs_queue_length", "gauge", "Requests that wait or are scored."),
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


#: Paths that ask for scores, and paths that need no token: none of them tells what others sent.
SCORING = ("/score", "/explain")
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
        """Answer a request, whatever happens."""
        started = time.perf_counter()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        path = scope["path"] if scope["path"] in _KNOWN else "other"
        try:
            if self._may(path, scope):
                await self._app(scope, receive, counted)
            else:
                headers = {"WWW-Authenticate": "Bearer"}
                await answer(
                    401, error("send the server's token: Authorization: Bearer TOKEN"), headers
                )(scope, receive, counted)
        except asyncio.CancelledError:  # the server stops, and its time is over
            if not status:
                await answer(503, error("the server was stopped"))(scope, receive, counted)
        except Exception as exception:
            self._report(f"{path}: unexpected {type(exception).__name__}: {exception}")
            if not status:
                await answer(500, error(f"unexpected {type(exception).__name__}"))(
                    scope, receive, counted
                )
        finally:
            seconds = time.perf_counter() - started
            self._metrics.answered(path, status, seconds, scoring=path in SCORING and status == 200)

    def _may(self, path: str, scope: Scope) -> bool:
        if self._token is None or path in OPEN:
            return True
        sent = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, token = sent.partition(b" ")
        # In constant time: the time of the answer must not tell how much of a guess was right.
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"


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
