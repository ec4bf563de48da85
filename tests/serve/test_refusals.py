"""What the server refuses: malformed, large or too many requests, strangers, slow clients."""

from __future__ import annotations

import gc
import json
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from support.gate import Gate
from support.score_server import DAYS, Running, Serve, advance
from support.stories import story
from support.waiting import HANGS_AFTER_S, eventually
from vcs_runtime.errors import DeviceMemoryError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.serve import app

PAIR = {"reference": story(1), "generated": story(2)}
TOKEN = b"0123456789abcdef"


MALFORMED: list[tuple[bytes | dict[str, Any], str]] = [
    (b"", "empty"),
    (b"{", "not JSON"),
    (b"\xff\xfe", "not UTF-8 (byte 0)"),
    (b"[" * 90_000, "nested too deeply"),
    (b"[" * 200_000, "expected object, got array"),
    (b'{"reference":' * 7_000, "nested too deeply"),
    (b'{"reference":' * 100_000, "reference: expected str | array, got object"),
    (b'{"reference":[' + b"[]," * 100_000, "reference[0]: expected str, got array"),
    (b"[]", "must be an object"),
    (b'"pairs"', "must be an object"),
    (b"null", "must be an object"),
    (b"1" * 5000, "not JSON"),
    (b'{"reference": NaN}', "NaN"),
    ({}, "reference"),
    ({"reference": "a"}, "generated"),
    ({**PAIR, "reference": 5}, "reference"),
    ({**PAIR, "reference": ["a", None]}, "reference[1]"),
    ({**PAIR, "generated": ["a"]}, "generated"),
    ({**PAIR, "id": True}, "id"),
    ({**PAIR, "id": {"a": 1}}, "id"),
    ({**PAIR, "optoins": {}}, "optoins"),
    ({**PAIR, "\ud800": 1}, "unknown field"),
    ({**PAIR, "a\nb\x1b[2J": 1}, r"a\nb\x1b[2J"),
    ({"pairs": []}, "pairs"),
    ({"pairs": PAIR}, "pairs"),
    ({"pairs": [PAIR, 5]}, "pairs[1]"),
    ({"pairs": [PAIR, {"reference": "a"}]}, "pairs[1]"),
    ({"pairs": [PAIR], **PAIR}, "unknown field"),
    (b'{"reference": "A.", "reference": "B.", "generated": "A."}', "has the key 'reference' twice"),
    ({**PAIR, "options": []}, "options"),
    ({**PAIR, "options": {"params": {}}}, "options"),
    ({**PAIR, "options": {"preset": "papr"}}, "options.preset"),
    ({**PAIR, "options": {"chunk_size": 0}}, "options.chunk_size"),
    ({**PAIR, "options": {"chunk_size": 2, "short": True}}, "options.chunk_size"),
    ({**PAIR, "options": {"aggregate": "median"}}, "options.aggregate"),
    ({**PAIR, "options": {"short": 1}}, "options.short"),
]


@pytest.mark.parametrize(("body", "names"), MALFORMED)
def test_a_malformed_request_gets_one_sentence_that_names_the_field(
    server: Running, body: bytes | dict[str, Any], names: str
) -> None:
    for path in ("/score", "/explain"):
        answer = server.ask(path, body)
        assert answer.status == 400, answer
        assert names in answer.error


NO_NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "1" * 400,
    "-1",
    "true",
    '"1"',
    "[1]",
    "{}",
]


@pytest.mark.parametrize("field", ["lct", "chunk_size"])
@pytest.mark.parametrize("wrong", NO_NUMBERS)
def test_an_option_that_is_no_finite_number_in_its_range_is_refused(
    server: Running, field: str, wrong: str
) -> None:
    for body in (PAIR, {"pairs": [PAIR]}):
        sent = json.dumps({**body, "options": {field: "HERE"}}).replace('"HERE"', wrong).encode()
        answer = server.ask("/score", sent)
        # JSON itself has no word for the first three.
        named = wrong if wrong.endswith(("NaN", "Infinity")) else f"options.{field}"
        assert (answer.status, named in answer.error) == (400, True), answer


@pytest.mark.parametrize("wrong", ["NaN", "-Infinity", "1e999", "1.5"])
def test_an_id_is_a_text_or_a_whole_number(server: Running, wrong: str) -> None:
    answer = server.ask(
        "/score", json.dumps({**PAIR, "id": 0}).replace(": 0}", f": {wrong}}}").encode()
    )
    assert answer.status == 400, answer
    assert (wrong if wrong[-1].isalpha() else "id") in answer.error, answer


def test_random_bodies_never_break_the_server(server: Running) -> None:
    rng = random.Random(1)
    whole = json.dumps({"pairs": [PAIR, PAIR], "options": {"lct": 0.5}}).encode()
    for _ in range(300):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(body))
            body[at : at + rng.randint(0, 3)] = rng.choice(
                [b"", b'"', b"\xff", b"{", b"]", b"1e9", b"\\ud800"]
            )
        assert server.ask("/score", bytes(body)).status in (200, 400)
    assert server.score(**PAIR).status == 200


def test_paths_and_methods_that_do_not_exist(server: Running) -> None:
    for path in ("/nope", "/score/", "//", "/score%00", "/%ff"):
        answer = server.ask(path, PAIR)
        assert answer.status == 404
        assert answer.error
    for method, path in (
        ("GET", "/score"),
        ("PUT", "/explain"),
        ("POST", "/metrics"),
        ("BREW", "/score"),
    ):
        answer = server.ask(path, method=method)
        assert answer.status == 405
        assert method in answer.error
    assert server.ask("/nope", headers={"Host": "["}).status == 404


def test_what_is_too_large_is_refused_before_and_while_it_is_read(serve: Serve) -> None:
    server = serve(max_body_mb=0.01, max_pairs=2, max_pair_characters=2000)
    assert "0.01 MB" in server.ask("/score", {**PAIR, "generated": "x" * 20_000}).error
    large = server.ask("/score", b"x" * 3_000_000)
    assert large.status == 413
    # Without a length: chunks, of which no one knows how many will come.
    with server.connect() as connection:
        connection.sendall(b"POST /score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
    answer = server.ask("/score", {"pairs": [PAIR] * 3})
    assert answer.status == 413
    assert "at most 2" in answer.error
    assert server.ask("/score", {"pairs": [PAIR] * 2}).status == 200
    for path in ("/score", "/explain"):
        for name, body in (
            ("pair", {"reference": "a" * 1500, "generated": "b" * 501}),
            ("pair", {"reference": ["a" * 1000, "c" * 900], "generated": "b" * 101}),
            ("pairs[1]", {"pairs": [PAIR, {"reference": "a", "generated": "b" * 2000}]}),
        ):
            answer = server.ask(path, body)
            assert answer.status == 413
            assert answer.error.startswith(f"{name}: 2,001 characters, more than 2,000")
            assert "--max-pair-characters" in answer.error
    largest = {"reference": "a" * 1500, "generated": "b" * 500}
    assert server.ask("/score", largest).status == 200


def test_a_chunked_body_is_read_whole(server: Running) -> None:
    body = json.dumps(PAIR).encode()
    with server.connect() as connection:
        connection.sendall(b"POST /score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 50):
            part = body[at : at + 50]
            connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /score HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n{}}}}}",
        b"GET /" + b"x" * 20_000,
    ],
)
def test_broken_http_is_refused(server: Running, head: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(head)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")


def test_a_slow_client_is_refused_and_harms_no_other(serve: Serve) -> None:
    server = serve(read_s=DAYS)
    body = json.dumps(PAIR).encode()
    head = b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    silent, headers, bodies, after = (server.connect() for _ in range(4))
    headers.sendall(head[:20])
    bodies.sendall(head + body[:20])
    after.sendall(head + body)
    assert after.recv(65536).startswith(b"HTTP/1.1 200")
    after.sendall(head[:20])  # the second request of a connection has the same limit
    assert server.score(**PAIR).status == 200  # so the server has read what was sent before
    advance(DAYS)
    answer = _until_closed(bodies)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"within 100000 s" in answer
    for connection in (silent, headers):
        assert _until_closed(connection) == b""
    assert b"HTTP/1.1" not in _until_closed(after)
    for connection in (silent, headers, bodies, after):
        connection.close()


def test_a_client_that_sends_byte_by_byte_is_not_waited_for(serve: Serve) -> None:
    server = serve(read_s=DAYS)
    with server.connect() as connection:
        for byte in b"GET /health HTTP/1.1\r\nX: xx":
            connection.sendall(bytes([byte]))
        assert server.ask("/health").status == 200  # so the server has read what was sent before
        advance(0.6 * DAYS)
        assert server.ask("/health").status == 200
        # The client is not late yet, and its next byte gives it no more time.
        connection.sendall(b"x")
        assert server.ask("/health").status == 200
        advance(0.6 * DAYS)
        assert _until_closed(connection) == b""


def test_a_server_that_stops_does_not_wait_for_slow_clients(serve: Serve) -> None:
    server = serve(timeout_s=0.1, read_s=60)
    with server.connect() as silent, server.connect() as body:
        body.sendall(b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{")
        assert server.ask("/health").status == 200  # so the server has read what was sent before
        server.stop()
        assert b"the server was stopped" in _until_closed(body)
        assert _until_closed(silent) == b""


def test_a_refused_body_is_not_read_for_ever(serve: Serve) -> None:
    server = serve(read_s=DAYS, max_body_mb=0.001)
    with server.connect() as connection:
        connection.sendall(b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        assert server.ask("/health").status == 200  # so the server has begun to wait for the rest
        advance(DAYS)
        _until_closed(connection)


def test_too_many_connections_are_closed_and_room_is_made_again(serve: Serve) -> None:
    server = serve(connections=3)
    held = [server.connect() for _ in range(3)]
    eventually(lambda: not _answers(server))
    for connection in held:
        connection.close()
    eventually(lambda: _answers(server))


@pytest.mark.parametrize("last", ["close", "keep-alive"])
def test_a_client_that_does_not_read_its_answer_is_cut_off(serve: Serve, last: str) -> None:
    server = serve(read_s=DAYS, connections=1)
    body = json.dumps({**PAIR, "id": "x" * 7_900_000}).encode()
    head = b"POST /score HTTP/1.1\r\nHost: a\r\nConnection: %s\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head % (last.encode(), len(body)) + body)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        eventually(lambda: _answers_later(server))
        assert len(_until_closed(connection)) < len(body) - 4096


def test_a_client_that_asks_much_and_reads_nothing_is_cut_off(serve: Serve) -> None:
    server = serve(read_s=DAYS, connections=1)
    with server.connect() as connection:
        # At last the server reads no more, or has closed the connection.
        connection.settimeout(0.5)
        with suppress(OSError):
            while True:
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
        eventually(lambda: _answers_later(server))


def test_one_address_leaves_connections_to_others(serve: Serve) -> None:
    server = serve(connections=8)
    held = [
        socket.create_connection(("127.0.0.1", server.port), 60, source_address=("127.0.0.2", 0))
        for _ in range(9)
    ]
    with suppress(OSError):
        assert held[-1].recv(1) == b""
    assert _answers(server)
    for connection in held:
        connection.close()


def test_others_are_answered_while_a_large_body_is_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    reading, read = threading.Event(), threading.Event()
    read_question = app.read_question

    def slow(body: bytes, *more: Any) -> Any:
        reading.set()
        assert len(body) < 100_000 or read.wait(HANGS_AFTER_S)
        return read_question(body, *more)

    monkeypatch.setattr(app, "read_question", slow)
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(server.score, **PAIR, id="x" * 100_000)
        assert reading.wait(HANGS_AFTER_S)
        assert server.score(**PAIR).status == 200
        read.set()
        assert large.result(HANGS_AFTER_S).status == 200


def _answers(server: Running) -> bool:
    try:
        return server.ask("/health").status == 200
    except OSError:
        return False


def _answers_later(server: Running) -> bool:
    """Whether the server answers when its clients have had time: one that reads has more of it."""
    advance(DAYS)
    return _answers(server)


def test_a_full_queue_asks_to_come_back(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(queue=2)
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(server.score, **PAIR) for _ in range(2)]
        eventually(lambda: server.metric("vcs_queue_length") == 2)
        refused = server.score(**PAIR)
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        assert "try again" in refused.error
        assert server.ask("/score", b"{").status == 400
        gate.open.set()
        assert [future.result(HANGS_AFTER_S).status for future in waiting] == [200, 200]
    assert server.score(**PAIR).status == 200


def test_a_request_that_takes_too_long_is_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(timeout_s=DAYS)
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        begun = pool.submit(server.score, **PAIR)
        assert gate.reached.wait(HANGS_AFTER_S)
        waiting = pool.submit(server.score, story(1), story(3))
        eventually(lambda: server.metric("vcs_queue_length") == 2)
        advance(DAYS)
        late = begun.result(HANGS_AFTER_S)
        assert (late.status, late.error) == (503, "not scored within 100000 s")
        assert waiting.result(HANGS_AFTER_S).status == 503
    gate.open.set()
    assert server.score(**PAIR).status == 200
    assert [story(3)] not in gate.batches  # what was given up before its turn costs nothing


def test_a_failure_that_comes_too_late_is_told_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(timeout_s=DAYS)
    embedding, given_up = threading.Event(), threading.Event()

    def full(*arguments: Any) -> Any:
        embedding.set()
        assert given_up.wait(HANGS_AFTER_S)
        raise DeviceMemoryError("the embedder: out of memory")

    monkeypatch.setattr(Embedder, "prepare", full)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(server.score, story(30), story(31))
        assert embedding.wait(HANGS_AFTER_S)
        advance(DAYS)
        assert late.result(HANGS_AFTER_S).status == 503
    given_up.set()
    eventually(lambda: len(server.lines) == 3)
    assert server.ask("/health").status == 200
    server.stop()
    gc.collect()
    assert not caplog.records


@pytest.mark.parametrize("early", [b"", b"GET /health HTTP/1.1\r\n", b"x" * 100_000], ids=len)
def test_a_client_that_goes_away_is_not_scored_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, early: bytes
) -> None:
    server = serve()
    gate = Gate(monkeypatch)
    body = json.dumps({**PAIR, "generated": story(9)}).encode()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.score, **PAIR)
        assert gate.reached.wait(HANGS_AFTER_S)
        with server.connect() as connection:
            head = b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % len(body) + body)
            eventually(lambda: server.metric("vcs_queue_length") == 2)
            connection.sendall(early)  # what asks too much at once is cut off
            assert server.ask("/livez").status == 200  # so the server has read what was sent before
        eventually(lambda: server.metric("vcs_queue_length") == 1)
        gate.open.set()
        assert first.result(HANGS_AFTER_S).status == 200
    assert server.score(**PAIR).status == 200
    assert [story(9)] not in gate.batches


def test_a_machine_that_fails_is_an_error_of_its_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()

    def full(*arguments: Any) -> Any:
        raise DeviceMemoryError("the embedder: out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "prepare", full)
        answer = server.score(story(30), story(31))
        assert answer.status == 500
        assert answer.error == "nothing was scored: DeviceMemoryError: the embedder: out of memory"
    assert server.lines[2:] == ["DeviceMemoryError: the embedder: out of memory"]
    assert server.score(story(30), story(31)).status == 200


def test_a_defect_is_one_line_and_the_server_goes_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    with monkeypatch.context() as patch:
        patch.setattr("vcs_runtime.serve.app.read_question", lambda *_: 1 / 0)
        answer = server.score(**PAIR)
    assert (answer.status, answer.error) == (500, "unexpected ZeroDivisionError")
    assert server.lines[2:] == ["/score: unexpected ZeroDivisionError: division by zero"]
    assert not caplog.records
    assert server.score(**PAIR).status == 200


def test_a_token_is_asked_for_where_texts_are(serve: Serve) -> None:
    server = serve(token=TOKEN)
    wrong = [None, b"", b"Bearer", b"Bearer x", b"Basic " + TOKEN, TOKEN, b"Bearer " + TOKEN + b"0"]
    for path in ("/score", "/explain", "/metrics", "/nope"):
        for value in wrong:
            headers = {} if value is None else {"Authorization": value.decode()}
            refused = server.ask(path, PAIR, headers=headers)
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "Authorization" in refused.error
    for path in ("/health", "/livez", "/readyz", "/docs", "/openapi.json"):
        assert server.ask(path).status == 200
    headers = {"Authorization": f"bearer {TOKEN.decode()}"}
    assert server.ask("/score", PAIR, headers=headers).status == 200
    assert server.ask("/metrics", headers=headers).status == 200


def test_threads_end_with_the_server(serve: Serve) -> None:
    before = set(threading.enumerate())
    server = serve()
    assert server.score(**PAIR).status == 200
    server.stop()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not left


def _until_closed(connection: socket.socket) -> bytes:
    """Everything that arrives until the server closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received
