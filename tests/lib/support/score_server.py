"""A server of scores in a thread, on a free port, and a client of the standard library."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

from support.waiting import HANGS_AFTER_S
from vcs_runtime import ScorerConfig
from vcs_runtime.scoring.options import Options
from vcs_runtime.serve import server as server_module
from vcs_runtime.serve.limits import Limits
from vcs_runtime.serve.server import ScoreServer, listen

# A server whose last block takes longer ends its process, which is that of the tests.
server_module._CLOSE_S = HANGS_AFTER_S

#: Seconds of a limit that no machine reaches, and that a test passes by `advance`.
DAYS = 100_000.0


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one sentence of a refusal."""
        assert set(self.json) == {"error"}, self.json
        sentence = self.json["error"]
        assert "\n" not in sentence
        assert "Traceback" not in sentence
        return str(sentence)


class Running:
    """A server, what it printed, and a client."""

    def __init__(
        self, config: ScorerConfig, limits: Limits, options: Options, token: bytes | None = None
    ) -> None:
        self.lines: list[str] = []
        self.ready = threading.Event()
        self._server = ScoreServer(
            listen("127.0.0.1", 0), config, options, limits, token, self._reported
        )
        self.port = int(self._server.url.rpartition(":")[2])
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()

    def _reported(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("ready:"):
            self.ready.set()

    def ask(
        self,
        path: str,
        body: Any = None,
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request on a connection of its own; anything but bytes is sent as JSON."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_AFTER_S)
        ) as client:
            client.request(method or ("GET" if body is None else "POST"), path, sent, headers or {})
            response = client.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def score(self, reference: Any, generated: Any, **more: Any) -> Answer:
        return self.ask("/score", {"reference": reference, "generated": generated, **more})

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANGS_AFTER_S)

    def metric(self, name: str) -> float:
        lines = self.ask("/metrics").body.decode().splitlines()
        [value] = [line.split()[-1] for line in lines if line.startswith(f"{name} ")]
        return float(value)

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(HANGS_AFTER_S)
        assert not self._thread.is_alive()


class _Clock:
    ahead = 0.0


def advance(seconds: float) -> None:
    """Put the clock of the event loops of this process forward: limits of servers are over at once.

    It is never put back, or what servers wait for would not come. They look at it ten times a
    second.
    """
    _Clock.ahead += seconds


asyncio.BaseEventLoop.time = lambda loop: time.monotonic() + _Clock.ahead  # type: ignore[method-assign]


Serve = Callable[..., Running]
