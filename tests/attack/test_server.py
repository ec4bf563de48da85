"""The HTTP server, by requests and by bytes: a documented answer, and the next client is served."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import fails
from attack.drawn import HOSTILE, TEXTS, VALUES, cases, chance, damaged, mostly
from support.score_server import Answer, Running
from support.stories import story
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Options, ScorerConfig
from vcs_runtime.scoring.background import BackgroundScorer
from vcs_runtime.serve.limits import Limits

#: The documented statuses, but 500 and 503: the machine does not fail, and the models are loaded.
STATUSES = (200, 400, 401, 404, 405, 408, 413)
PAIR = {"reference": story(1), "generated": story(2)}
PAIRS = 900
LARGE = json.dumps(
    {"pairs": [{"reference": story(i, 60), "generated": story(500 + i, 60)} for i in range(PAIRS)]}
).encode()
PATHS = (
    ("/score",) * 6
    + ("/explain",) * 3
    + ("/health", "/livez", "/metrics", "/openapi.json", "/docs", "/", "/score/", "/nowhere")
)
METHODS = ("POST",) * 8 + ("GET", "PUT", "HEAD", "DELETE", "OPTIONS")
TEXT = mostly(TEXTS, st.lists(TEXTS, max_size=3), VALUES, times=8)
OPTIONS = st.dictionaries(
    st.sampled_from(("preset", "chunk_size", "lct", "aggregate", "short", "x")),
    st.sampled_from(("paper", 2, 0.5, "mean", True)) | VALUES,
    max_size=2,
)
QUESTIONS = st.fixed_dictionaries(
    {"reference": TEXT, "generated": TEXT},
    optional={"id": st.just(1) | HOSTILE | VALUES, "options": OPTIONS},
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request whose body is right, holds values of any kind, or is damaged."""
    body: Any = draw(mostly(QUESTIONS, VALUES, times=19))
    if isinstance(body, dict):
        body |= draw(st.dictionaries(HOSTILE, VALUES, max_size=1)) if chance(draw, 15) else {}
        if chance(draw, 30):
            body.pop("options", None)
            body = {"pairs": [body] * draw(st.integers(0, 6))}
    content = json.dumps(body).encode()
    content = draw(damaged(content)) if chance(draw, 40) else content
    kind = draw(st.sampled_from(("application/json", "text/plain", "\xff")))
    name = draw(st.sampled_from(("Authorization", "X", "Accept")))
    value = draw(st.text("abc \xe9\xff", max_size=8))
    head = (
        f"{draw(st.sampled_from(METHODS))} {draw(st.sampled_from(PATHS))} HTTP/1.1\r\nHost:"
        " x\r\nConnection: close\r\n"
    )
    head += f"Content-Type: {kind}\r\n{name}: {value}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode("latin-1") + content


@pytest.fixture(scope="module")
def server(tiny_bundle: Path) -> Iterator[Running]:
    running = Running(
        ScorerConfig(tiny_bundle, "cpu"),
        Limits(max_body_mb=0.05, max_pairs=5, read_s=HANGS_AFTER_S, timeout_s=HANGS_AFTER_S),
        Options(),
    )
    try:
        assert running.ready.wait(HANGS_AFTER_S)
        yield running
    finally:
        running.stop()


def send(server: Running, request: bytes, *, ends: bool = False) -> Answer | None:
    """Send bytes, after which nothing may come; returns the answer, if there is one."""
    with server.connect() as client:
        client.settimeout(HANGS_AFTER_S)
        response = http.client.HTTPResponse(
            client, method=request.partition(b" ")[0].decode("latin-1")
        )
        try:
            client.sendall(request)
            if ends:
                client.shutdown(socket.SHUT_WR)
            response.begin()
            return Answer(response.status, dict(response.getheaders()), response.read())
        except (OSError, http.client.HTTPException):
            return None


def check(answer: Answer) -> None:
    assert answer.status in STATUSES, f"status {answer.status}: {answer.body[:300]!r}"
    assert b"Traceback" not in answer.body
    if answer.status != 200 and answer.body:
        assert answer.error


@cases(80)
@given(request=requests())
def test_a_request_has_a_documented_status_and_one_sentence(
    server: Running, request: bytes
) -> None:
    server.lines.clear()
    answer = send(server, request)
    assert answer
    check(answer)
    assert not server.lines


@cases(15)
@given(request=requests(), data=st.data())
def test_after_any_bytes_the_next_client_gets_its_score(
    server: Running, request: bytes, data: st.DataObject
) -> None:
    right = server.score(*PAIR.values()).json
    server.lines.clear()
    answer = send(server, data.draw(damaged(request)), ends=True)
    assert not answer or answer.status in STATUSES, answer
    again = server.score(*PAIR.values())
    assert (again.status, again.json) == (200, right)
    assert not server.lines


GONE = (
    b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
    b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n{",
    b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(LARGE), LARGE),
)


@pytest.mark.parametrize("sent", GONE)
@pytest.mark.parametrize("reset", [False, True])
def test_after_any_client_has_gone_a_small_request_is_answered_at_once(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes, reset: bool
) -> None:
    scored: list[Any] = []
    really = BackgroundScorer._score

    def score(engine: Any, scorer: Any, requests: list[Any], beside: bool) -> None:
        really(engine, scorer, requests, beside)
        scored.extend(len(request.converted) for request in requests if len(request.pairs) == PAIRS)

    monkeypatch.setattr(BackgroundScorer, "_score", score)
    limits = Limits(queue=2, connections=3, read_s=HANGS_AFTER_S, timeout_s=HANGS_AFTER_S)
    server = Running(ScorerConfig(tiny_bundle, "cpu"), limits, Options())
    try:
        assert server.ready.wait(HANGS_AFTER_S)
        right = server.score(*PAIR.values()).json
        for _ in range(4):
            with server.connect() as client:
                if reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(sent)
            again = server.score(*PAIR.values())
            end = time.monotonic() + HANGS_AFTER_S
            while again.status == 429:  # its place in the queue is free soon
                assert time.monotonic() < end
                again = server.score(*PAIR.values())
            assert (again.status, again.json) == (200, right)
    finally:
        server.stop()
    # A request that was given up takes a turn of a few pairs, a whole one has all of them.
    assert all(pairs < PAIRS for pairs in scored)


def test_a_status_that_is_not_documented_is_seen(server: Running, plant: Any) -> None:
    plant("vcs_runtime.serve.app.read_question", fails)
    with pytest.raises(AssertionError, match="status 500"):
        check(server.score(*PAIR.values()))
