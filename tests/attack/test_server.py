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


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A question as JSON: right, with values of any kind, or damaged."""
    pair: dict[str, Any] = {
        "reference": draw(mostly(TEXTS, st.lists(TEXTS, max_size=3))),
        "generated": draw(TEXTS),
    }
    if chance(draw, 30):
        pair["id"] = draw(st.just(1) | HOSTILE | VALUES)
    if chance(draw, 30):
        names = st.sampled_from(("preset", "chunk_size", "lct", "aggregate", "short", "x"))
        pair["options"] = draw(
            st.dictionaries(names, st.sampled_from(("paper", 2, 0.5, "mean", True)) | VALUES, max_size=2)
        )
    if chance(draw, 20):
        pair[draw(st.sampled_from(("reference", "generated", "id", "options")) | HOSTILE)] = draw(VALUES)
    body: Any = pair
    if chance(draw, 30):
        body = {"pairs": [{k: v for k, v in pair.items() if k != "options"}] * draw(st.integers(0, 6))}
    if chance(draw, 5):
        body = draw(VALUES)
    content = json.dumps(body).encode()
    return draw(damaged(content)) if chance(draw, 40) else content


def ask(
    service: Service, method: str, path: str, headers: list[Any], messages: list[Any], query: bytes = b""
) -> bytes:
    """Hand a request to the application, and judge its answer."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "root_path": "", "scheme": "http", "query_string": query,
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
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
    status = sent[0]["status"] if sent else 0
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    assert status in STATUSES, f"status {status}: {answer[:300]!r}"
    assert b"Traceback" not in answer
    if status != 200 and answer:
        said = json.loads(answer)
        assert set(said) == {"error"}
        assert said["error"]
        assert "\n" not in said["error"]
    return answer


@cases(80)
@given(
    method=st.sampled_from(METHODS), path=st.sampled_from(PATHS), body=bodies(), kind=st.sampled_from((b"application/json", b"text/plain", b"\xff")),
    more=st.lists(st.tuples(st.sampled_from((b"authorization", b"expect", b"host", b"x")), st.binary(max_size=8)), max_size=1),
    counted=st.booleans(), cut=st.booleans(), leaves=st.integers(0, 19), query=st.binary(max_size=4),
)  # fmt: skip
def test_a_request_has_a_documented_status_and_one_sentence(
    server: Server, method: str, path: str, body: bytes, kind: bytes, more: list[Any], counted: bool, cut: bool, leaves: int, query: bytes
) -> None:  # fmt: skip
    headers = [(b"content-type", kind), *more]
    headers += [(b"content-length", str(len(body)).encode())] if counted else []
    parts = [body[: len(body) // 2], body[len(body) // 2 :]] if cut else [body]
    messages = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]
    if leaves == 19:
        messages[-1] = {"type": "http.disconnect"}
    ask(server.service, method, path, headers, messages, query)
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
    def fails(*arguments: object, **options: object) -> None:
        raise KeyError("x")

    body = json.dumps(PAIR).encode()
    plant("vcs_runtime.serve.app.read_question", lambda _: fails)
    with pytest.raises(AssertionError, match="status 500"):
        ask(
            server.service, "POST", "/score", [], [{"type": "http.request", "body": body, "more_body": False}]
        )
    server.reported.clear()
