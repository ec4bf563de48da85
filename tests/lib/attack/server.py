"""Door: the HTTP server, by requests that are handed to its application, and by bytes on a connection."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attack.cases import Attack, Door, Ground
from attack.damage import STRINGS, damaged, text, value
from support.score_server import Running
from support.stories import story
from vcs_runtime import Options, ScorerConfig
from vcs_runtime.serve.app import Service
from vcs_runtime.serve.limits import Limits

#: The documented statuses, but 500 and 503: the machine does not fail, and the models are loaded.
STATUSES = (200, 400, 401, 404, 405, 408, 413)
_PAIR = {"reference": story(1), "generated": story(2)}
_PATHS = (
    ("/score",) * 6
    + ("/explain",) * 3
    + ("/health", "/metrics", "/openapi.json", "/docs", "/", "/score/", "/nowhere")
)
_METHODS = ("POST",) * 8 + ("GET", "PUT", "HEAD", "DELETE", "OPTIONS", "\u00e9")


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    reported: list[str] = []
    config, limits = ScorerConfig(ground.bundle, "cpu"), Limits(max_body_mb=0.05, max_pairs=5, read_s=2)
    service = Service(config, Options(), limits, None, reported.append)
    running = Running(config, limits, Options())
    try:
        service.ready.result(120)
        assert running.ready.wait(120)
        usual = len(running.lines)
        right = running.score(*_PAIR.values()).json

        def attack(rng: random.Random, folder: Path) -> list[str]:
            reported.clear()
            del running.lines[usual:]
            if rng.random() < 0.05:
                found = _on_a_connection(rng, running, right)
            else:
                found = _to_the_application(rng, service)
            found += [f"the server reported {line}" for line in [*reported, *running.lines[usual:]]]
            return found

        yield attack
    finally:
        running.stop()
        service.engine.close()


def _body(rng: random.Random) -> bytes:
    pair: dict[str, Any] = {"reference": text(rng), "generated": text(rng)}
    if rng.random() < 0.3:
        pair["reference"] = [text(rng) for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:
        pair["id"] = rng.choice((1, "a", *STRINGS, value(rng)))
    if rng.random() < 0.3:
        pair["options"] = {
            rng.choice(("preset", "chunk_size", "lct", "aggregate", "short", "x")): rng.choice(("paper", 2, 0.5, "mean", True, value(rng)))
            for _ in range(rng.randrange(3))
        }  # fmt: skip
    if rng.random() < 0.2:
        pair[rng.choice(("reference", "generated", "id", "options", *STRINGS))] = value(rng)
    body: Any = pair
    if rng.random() < 0.3:
        body = {"pairs": [{k: v for k, v in pair.items() if k != "options"}] * rng.randrange(7)}
    if rng.random() < 0.05:
        body = value(rng)
    data = json.dumps(body).encode()
    return damaged(rng, data) if rng.random() < 0.4 else data


def _to_the_application(rng: random.Random, service: Service) -> list[str]:
    method, path, body = rng.choice(_METHODS), rng.choice(_PATHS), _body(rng)
    headers = [(b"content-type", rng.choice((b"application/json", b"text/plain", b"\xff")))]
    if rng.random() < 0.5:
        headers.append((b"content-length", str(len(body)).encode()))
    if rng.random() < 0.2:
        headers.append(
            (rng.choice((b"authorization", b"expect", b"host", b"x")), rng.randbytes(rng.randrange(9)))
        )
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "root_path": "", "scheme": "http", "query_string": rng.randbytes(rng.randrange(5)),
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    parts = [body[: len(body) // 2], body[len(body) // 2 :]] if rng.random() < 0.3 else [body]
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": part, "more_body": index + 1 < len(parts)}
        for index, part in enumerate(parts)
    ]
    if rng.random() < 0.05:
        messages[-1] = {"type": "http.disconnect"}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
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
    return _judge(status, answer, f"{method} {path} {body[:300]!r}")


def _judge(status: int, answer: bytes, asked: str) -> list[str]:
    if status not in STATUSES:
        return [f"status {status}: {answer[:300]!r}: {asked}"]
    if b"Traceback" in answer:
        return [f"a traceback: {answer[:300]!r}: {asked}"]
    if status != 200 and answer:
        said = json.loads(answer)
        if set(said) != {"error"} or not said["error"] or "\n" in said["error"]:
            return [f"status {status} without one sentence: {answer[:300]!r}: {asked}"]
    return []


def _on_a_connection(rng: random.Random, running: Running, right: Any) -> list[str]:
    """Send a damaged request as bytes; whatever becomes of it, the next client gets its score."""
    body = _body(rng)
    head = f"POST {rng.choice(_PATHS)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    request = damaged(rng, head.encode() + body)
    answer = b""
    with suppress(OSError), running.connect() as client:
        client.settimeout(10)
        client.sendall(request)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        while part := client.recv(1 << 16):
            answer += part
    found = []
    for line in answer.split(b"\r\n"):
        if line.startswith(b"HTTP/1.1 ") and int(line[9:12]) not in STATUSES:
            found.append(f"{line!r} to {request[:300]!r}")
    again = running.score(*_PAIR.values())
    if again.status != 200 or again.json != right:
        found.append(f"after {request[:300]!r} another client got {again.status} {again.body[:200]!r}")
    return found


SERVER = Door("server", 7, "requests to `serve`, handed to its application and sent as bytes", _open)
