"""The HTTP server, by requests that are handed to its application, and by bytes on a connection."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import fails
from attack.drawn import HOSTILE, TEXTS, VALUES, cases, chance, damaged, mostly
from support.score_server import Running
from support.stories import story
from vcs_runtime import Options, ScorerConfig
from vcs_runtime.serve.app import Service
from vcs_runtime.serve.limits import Limits

#: The documented statuses, but 500 and 503: the machine does not fail, and the models are loaded.
STATUSES = (200, 400, 401, 404, 405, 408, 413)
PAIR = {"reference": story(1), "generated": story(2)}
PATHS = (
    ("/score",) * 6
    + ("/explain",) * 3
    + ("/health", "/metrics", "/openapi.json", "/docs", "/", "/score/", "/nowhere")
)
METHODS = ("POST",) * 8 + ("GET", "PUT", "HEAD", "DELETE", "OPTIONS", "\u00e9")


class Server(NamedTuple):
    """The application alone, what it reported, and a server that runs."""

    service: Service
    reported: list[str]
    running: Running
    right: Any

    def check_reports(self) -> None:
        lines = self.reported + self.running.lines
        self.reported.clear()
        self.running.lines.clear()
        assert not lines, f"the server reported {lines}"


@pytest.fixture(scope="module")
def server(tiny_bundle: Path) -> Iterator[Server]:
    reported: list[str] = []
    config, limits = ScorerConfig(tiny_bundle, "cpu"), Limits(max_body_mb=0.05, max_pairs=5, read_s=2)
    service = Service(config, Options(), limits, None, reported.append)
    running = Running(config, limits, Options())
    try:
        service.ready.result(120)
        assert running.ready.wait(120)
        right = running.score(*PAIR.values()).json
        running.lines.clear()
        reported.clear()
        yield Server(service, reported, running, right)
    finally:
        running.stop()
        service.engine.close()


_TEXT = mostly(TEXTS, st.lists(TEXTS, max_size=3), VALUES, times=8)
_OPTIONS = st.dictionaries(
    st.sampled_from(("preset", "chunk_size", "lct", "aggregate", "short", "x")),
    st.sampled_from(("paper", 2, 0.5, "mean", True)) | VALUES,
    max_size=2,
)
QUESTIONS = st.fixed_dictionaries(
    {"reference": _TEXT, "generated": _TEXT},
    optional={"id": st.just(1) | HOSTILE | VALUES, "options": _OPTIONS},
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A question as JSON: right, with values of any kind, or damaged."""
    body: Any = draw(mostly(QUESTIONS, VALUES, times=19))
    if isinstance(body, dict):
        body |= draw(st.dictionaries(HOSTILE, VALUES, max_size=1)) if chance(draw, 15) else {}
        if chance(draw, 30):
            body.pop("options", None)
            body = {"pairs": [body] * draw(st.integers(0, 6))}
    content = json.dumps(body).encode()
    return draw(damaged(content)) if chance(draw, 40) else content


def ask(
    service: Service,
    body: bytes,
    method: str = "POST",
    path: str = "/score",
    headers: Any = (),
    *,
    leaves: bool = False,
) -> None:
    """Hand a request to the application in two parts, and judge its answer."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "root_path": "", "scheme": "http", "query_string": b"", "headers": list(headers),
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    half = len(body) // 2
    messages: list[Any] = [{"type": "http.request", "body": body[:half], "more_body": True}]
    messages += [{"type": "http.disconnect"} if leaves else {"type": "http.request", "body": body[half:]}]
    sent: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def talk() -> None:
        await asyncio.wait_for(service.app(scope, receive, send), 60)

    asyncio.run(talk())
    status = sent[0]["status"]
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    assert status in STATUSES, f"status {status}: {answer[:300]!r}"
    assert b"Traceback" not in answer
    if status != 200 and answer:
        said = json.loads(answer)
        assert set(said) == {"error"}
        assert said["error"]
        assert "\n" not in said["error"]


HEADERS = st.tuples(
    st.tuples(st.just(b"content-type"), st.sampled_from((b"application/json", b"text/plain", b"\xff"))),
    st.tuples(st.sampled_from((b"authorization", b"expect", b"host", b"x")), st.binary(max_size=8)),
)


@cases(80)
@given(body=bodies(), method=st.sampled_from(METHODS), path=st.sampled_from(PATHS), headers=HEADERS,
       counted=st.booleans(), leaves=mostly(st.just(False), st.just(True), times=19))  # fmt: skip
def test_a_request_has_a_documented_status_and_one_sentence(
    server: Server, body: bytes, method: str, path: str, headers: Any, counted: bool, leaves: bool
) -> None:
    more = [(b"content-length", str(len(body)).encode())] if counted else []
    ask(server.service, body, method, path, (*headers, *more), leaves=leaves)
    server.check_reports()


@cases(4)
@given(path=st.sampled_from(PATHS), body=bodies(), data=st.data())
def test_after_any_bytes_the_next_client_gets_its_score(
    server: Server, path: str, body: bytes, data: st.DataObject
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    request, answer = data.draw(damaged(head.encode() + body)), b""
    with suppress(OSError), server.running.connect() as client:
        client.settimeout(10)
        client.sendall(request)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        while part := client.recv(1 << 16):
            answer += part
    for line in answer.split(b"\r\n"):
        assert not line.startswith(b"HTTP/1.1 ") or int(line[9:12]) in STATUSES, line
    again = server.running.score(*PAIR.values())
    assert (again.status, again.json) == (200, server.right)
    server.check_reports()


def test_a_status_that_is_not_documented_is_seen(server: Server, plant: Any) -> None:
    plant("vcs_runtime.serve.app.read_question", fails)
    with pytest.raises(AssertionError, match="status 500"):
        ask(server.service, json.dumps(PAIR).encode())
    server.reported.clear()
