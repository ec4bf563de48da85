"""The client of model servers: the whole answer in time, of a bounded size, and JSON."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import parse_headers

import pytest

from support.command_line import assert_refused, vcs
from support.waiting import HANGS_AFTER_S
from vcs_runtime.errors import ModelError
from vcs_runtime.util import json_http as http
from vcs_runtime.util.json_http import Client

HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"


@contextmanager
def server(*parts: bytes, pause: float = 0.0) -> Iterator[str]:
    """A server that sends these parts as its answer to one request, with a pause after each."""
    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as request:
                # What was not read when the socket closes resets the connection under the answer.
                request.readline()
                request.read(int(parse_headers(request).get("Content-Length", "0")))
                for part in parts:
                    connection.sendall(part)
                    if stop.wait(pause):
                        return

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        listener.close()
        thread.join()


def test_an_answer_is_read_whole() -> None:
    with server(HEAD, b'{"a": ', b"1}") as url:
        assert Client(url, HANGS_AFTER_S).post("/v1", {}) == {"a": 1}


def test_a_server_that_stops_within_its_answer_is_not_waited_for() -> None:
    with (
        server(HEAD, b'{"a": ', b"1}", pause=HANGS_AFTER_S) as url,
        pytest.raises(ModelError, match="no answer within"),
    ):
        Client(url, 0.2).get("/v1/models")


def test_an_address_may_have_a_path() -> None:
    with server(HEAD, b"1") as url:
        assert Client(f"{url}/proxy/", HANGS_AFTER_S).get("/v1/models") == 1


def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MOST_BYTES", 1000)
    with (
        server(HEAD, b" " * 1000 + b"1") as url,
        pytest.raises(ModelError, match="more than 1000 bytes"),
    ):
        Client(url, HANGS_AFTER_S).get("/")


@pytest.mark.parametrize("answer", [b"[" * 200_000, b"\xff", b"", b"{"])
def test_what_is_no_json_is_named(answer: bytes) -> None:
    with server(HEAD, answer) as url, pytest.raises(ModelError, match="the answer is not JSON"):
        Client(url, HANGS_AFTER_S).get("/")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e10])
def test_a_time_that_no_clock_can_wait_is_refused(timeout: float) -> None:
    with pytest.raises(
        ValueError, match="timeout must be a number of seconds above 0, up to 1000000"
    ):
        Client("http://127.0.0.1:1", timeout)
    done = vcs("visil", "probe", "--model", "vllm:http://127.0.0.1:1", "--timeout", "1e10")
    assert_refused(done, "timeout must be a number of seconds above 0")


SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    "url", [f"http://{SECRET}@h:1", f"http://u:{SECRET}@h:1", f"http://h:1/?key={SECRET}"]
)
def test_a_key_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="put a key into VCS_RUNTIME_API_KEY") as caught:
        Client(url, 1)
    assert SECRET not in str(caught.value)


def test_no_error_repeats_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = b"HTTP/1.0 401 Unauthorized\r\n\r\nwrong key: " + SECRET.encode()
    monkeypatch.setenv(http.KEY, f"{SECRET}\n")  # as a file of a key ends
    with (
        server(refusal) as url,
        pytest.raises(ModelError, match=r"401 Unauthorized: wrong key: \(key\)"),
    ):
        Client(url, HANGS_AFTER_S).get("/")
    for wrong in (f"{SECRET}\nX: y", f"{SECRET}é"):
        monkeypatch.setenv(http.KEY, wrong)
        with pytest.raises(ModelError, match=r"VCS_RUNTIME_API_KEY: the key") as caught:
            Client("http://127.0.0.1:1", HANGS_AFTER_S).get("/")
        assert SECRET not in str(caught.value)
