"""The server process: its socket, its token, its start and its end."""

from __future__ import annotations

import errno
import ipaddress
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from vcs_runtime.errors import InputError
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Result
from vcs_runtime.serve.app import Service
from vcs_runtime.serve.connections import limited
from vcs_runtime.serve.limits import Limits
from vcs_runtime.util.atomic import file_errors
from vcs_runtime.util.reading import read_whole

_CLOSE_S = 4.0
_TOKEN_LENGTH = 16


def read_token(path: Path, report: Callable[[str], None]) -> bytes:
    """Read the token that clients must send, the only line of a file. Raises InputError."""
    with file_errors(path):
        token = read_whole(path, pipe=True).strip()
        readable_by_all = path.stat().st_mode & 0o004
    if len(token) < _TOKEN_LENGTH or not all(33 <= byte <= 126 for byte in token):
        raise InputError(
            f"{path}: a token is one line of at least {_TOKEN_LENGTH} ASCII characters without"
            " spaces (`openssl rand -hex 32` makes one)"
        )
    if readable_by_all and os.name == "posix":
        report(f"everybody on this machine can read the token: type chmod 600 {path}")
    return token


def is_loopback(host: str) -> bool:
    """Return whether a host is reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Open the server's listening socket; port 0 takes a free one.

    Raises InputError with host and port.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=256)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"--host {host} --port {port}: cannot listen: {reason}"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use: choose another with --port N"
        raise InputError(message) from None


class ScoreServer:
    """A server of scores on a listening socket, which it closes at the end."""

    def __init__(
        self,
        listener: socket.socket,
        config: ScorerConfig,
        options: Options,
        limits: Limits,
        token: bytes | None,
        report: Callable[[str], None],
    ) -> None:
        host, port = listener.getsockname()[:2]
        if ":" in host:  # IPv6
            host = f"[{host}]"
        self.url = f"http://{host}:{port}"
        self._listener = listener
        self._options = options
        self._report = report
        self._service = Service(config, options, limits, token, report)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._service.app,
                http=limited(limits),
                ws="none",
                lifespan="off",
                loop="asyncio",
                access_log=False,
                log_config=None,
                log_level="critical",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(limits.timeout_s),
            )
        )

    def run(self) -> None:
        """Serve until `stop`, SIGTERM or SIGINT, then finish accepted requests. Raises VcsError."""
        ready = self._service.ready
        with self._listener, self._stopped_by_signals():
            self._report(f"listening on {self.url} (help: {self.url}/docs); loading")
            ready.add_done_callback(self._opened)
            self._server.run(sockets=[self._listener])
            opened = ready.done()  # `_close` fails a request that waits for the models
            self._close()
        if opened:
            ready.result()

    def stop(self) -> None:
        """Let `run` finish the accepted requests, and return."""
        self._server.should_exit = True

    def _signalled(self) -> None:
        self._server.force_exit = self._server.should_exit
        self.stop()

    def _opened(self, ready: Future[list[Result]]) -> None:
        scorer = self._service.engine.scorer
        if ready.exception() or scorer is None:
            self.stop()
        else:
            device = scorer.embedder.device
            signature = scorer.signature_for(self._options)
            self._report(f"ready: {device.provider_name} ({device.reason}): {signature}")

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM stop the server only; uvicorn raises them again at its end.

        A second signal gives up the accepted requests.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {}
        for name in (signal.SIGINT, signal.SIGTERM):
            handlers[name] = signal.signal(name, lambda *_: self._signalled())
        try:
            yield
        finally:
            for name, handler in handlers.items():
                signal.signal(name, handler)

    def _close(self) -> None:
        """Close the scorer, and end the process if the scorer's current block takes too long.

        No client is waiting for the block at this point.
        """
        closing = threading.Thread(
            target=self._service.engine.close, name="vcs-closing", daemon=True
        )
        closing.start()
        closing.join(_CLOSE_S)
        if closing.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
