"""The application: endpoints, and the path of a request to the scorer and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from vcs_numba.jit.kernel import is_compiling
from vcs_runtime._version import __version__
from vcs_runtime.errors import VcsError
from vcs_runtime.scoring.background import BackgroundScorer, Request
from vcs_runtime.scoring.example import EXAMPLE
from vcs_runtime.scoring.explanation import explain
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.serve.guard import Guard, Metrics, answer, error
from vcs_runtime.serve.limits import Limits
from vcs_runtime.serve.messages import LARGE_BODY, Refused, read_question
from vcs_runtime.serve.openapi import docs_page, document

Convert = Callable[[Result, Evidence | None, Options], dict[str, Any]]


class Service:
    """The endpoints over one scorer, which is opened in the background.

    If `token` is None, clients need no token.
    """

    def __init__(
        self,
        config: ScorerConfig,
        options: Options,
        limits: Limits,
        token: bytes | None,
        report: Callable[[str], None],
    ) -> None:
        self._options = options
        self._limits = limits
        self._metrics = Metrics(lambda: self.engine.held)
        self._report = report
        self.engine = BackgroundScorer(config, self._failed, beside=True)
        # The first request compiles the kernels and loads all models. Its second pair has no
        # punctuation, which opens a learned segmenter; without one, the pair has an error.
        pair = (EXAMPLE["reference"], EXAMPLE["generated"])
        plain = (pair[0].replace(".", ""), pair[1].replace(".", ""))
        warm_up = Request([pair, plain], options, lambda result, _: result)
        self.ready: Future[list[Result]] = warm_up.future
        self.engine.put(warm_up)
        self._page = docs_page(__version__, limits)
        self._document = document(__version__)
        self.app = Starlette(
            routes=[
                Route("/score", self._score, methods=["POST"]),
                Route("/explain", self._explain, methods=["POST"]),
                Route("/livez", self._alive),
                Route("/readyz", self._ready),
                Route("/health", self._ready),
                Route("/metrics", self._show_metrics),
                Route("/openapi.json", self._openapi),
                Route("/docs", self._docs),
                Route("/", self._docs),
            ],
            middleware=[Middleware(Guard, token=token, metrics=self._metrics, report=report)],
            exception_handlers={HTTPException: _http_error, Refused: _refused},
        )
        self.app.router.redirect_slashes = False

    def _failed(self, failure: Exception) -> None:
        # If the server cannot start, `ready` has the exception, and `run` raises it.
        if self.ready.done():
            self._report(_failure(failure))

    async def _score(self, request: HttpRequest) -> Response:
        return await self._answer(request, _scores)

    async def _explain(self, request: HttpRequest) -> Response:
        return await self._answer(request, _explanation)

    async def _answer(self, http: HttpRequest, convert: Convert) -> Response:
        """Read a request, score it with all others that wait, and answer it."""
        body = await self._body(http)
        read = partial(read_question, body, self._options, self._limits)
        if len(body) < LARGE_BODY:
            question = read()
        else:
            # In another thread, so that other requests are answered meanwhile.
            question = await asyncio.to_thread(read)
        if self.engine.held >= self._limits.queue:
            raise Refused(
                429, f"too many requests are waiting ({self.engine.held}): try again later"
            )
        options = question.options
        request = Request(
            question.pairs, options, lambda result, evidence: convert(result, evidence, options)
        )
        try:
            entries = await self._entries(http, request)
        finally:
            request.pairs = ()  # the scorer may reach a cancelled request much later
        self._metrics.pairs += len(entries)
        self._metrics.errors += sum("error" in entry for entry in entries)
        lines = [{**head, **entry} for head, entry in zip(question.heads, entries, strict=True)]
        return answer(200, lines[0] if question.single else {"results": lines})

    async def _body(self, http: HttpRequest) -> bytes:
        limit = self._limits.max_body
        too_large = Refused(413, f"the body is larger than {self._limits.max_body_mb:g} MB")
        if int(http.headers.get("content-length", 0)) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.read_s):
                async for part in http.stream():
                    body += part
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise Refused(
                408, f"the body did not arrive within {self._limits.read_s:g} s"
            ) from None
        except ClientDisconnect:
            raise Refused(400, "the body is incomplete") from None
        return bytes(body)

    async def _entries(
        self, http: HttpRequest, request: Request[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Wait for the scorer until the time limit, or until the client disconnects."""
        scored = asyncio.wrap_future(request.future)
        # The body is read, so the only message that can come is a disconnect.
        disconnected: asyncio.Future[Any] = asyncio.ensure_future(http.receive())
        awaited: set[asyncio.Future[Any]] = {scored, disconnected}
        self.engine.put(request)
        try:
            await asyncio.wait(
                awaited, timeout=self._limits.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if scored.done():
                return scored.result()
        except Exception as failure:
            raise Refused(500, f"nothing was scored: {_failure(failure)}") from None
        finally:
            disconnected.cancel()
            scored.cancel()  # this also cancels the future of the request
        if disconnected.done() and not disconnected.cancelled():
            raise Refused(400, "the client has gone")
        raise Refused(503, f"not scored within {self._limits.timeout_s:g} s")

    async def _alive(self, request: HttpRequest) -> Response:
        return answer(200, {"status": "alive", "version": __version__})

    async def _ready(self, request: HttpRequest) -> Response:
        scorer = self.engine.scorer
        if scorer is None or not self.ready.done():
            status = "compiling" if is_compiling() else "loading"
            return answer(503, {"status": status, "version": __version__})
        device = scorer.embedder.device
        return answer(
            200,
            {
                "status": "ready",
                "version": __version__,
                "signature": scorer.signature_for(self._options),
                "device": f"{device.provider_name} ({device.reason})",
            },
        )

    async def _show_metrics(self, request: HttpRequest) -> Response:
        return PlainTextResponse(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def _openapi(self, request: HttpRequest) -> Response:
        return answer(200, self._document)

    async def _docs(self, request: HttpRequest) -> Response:
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(self._page, headers={"Content-Security-Policy": policy})


def _scores(result: Result, evidence: Evidence | None, options: Options) -> dict[str, Any]:
    return result.to_dict()


def _explanation(result: Result, evidence: Evidence | None, options: Options) -> dict[str, Any]:
    """Explain a result; a pair that was not scored has no evidence, and only its error."""
    if evidence is None:
        return result.to_dict()
    return explain(result, evidence, options.params).to_dict()


async def _refused(request: HttpRequest, exception: Exception) -> Response:
    assert isinstance(exception, Refused)
    headers = {}
    if exception.status in (429, 503):
        headers["Retry-After"] = "1"
    if exception.status == 408:
        headers["Connection"] = "close"
    return answer(exception.status, error(str(exception)), headers)


async def _http_error(request: HttpRequest, exception: Exception) -> Response:
    assert isinstance(exception, HTTPException)
    path = request.scope["path"][:100]
    sentences = {
        404: f"there is no path {path}; the page / lists all paths",
        405: f"{path} does not accept {request.method}",
    }
    text = sentences.get(exception.status_code, exception.detail)
    return answer(exception.status_code, error(text), dict(exception.headers or {}))


def _failure(failure: Exception) -> str:
    if type(failure) is VcsError:
        return str(failure)
    return f"{type(failure).__name__}: {failure}"
