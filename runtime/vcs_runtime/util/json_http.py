"""JSON over HTTP with the one server that the user named: no proxies, no redirects."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.util.numbers import checked_number

KEY = "VCS_RUNTIME_API_KEY"
"""Environment variable with the key of a server that requires one."""

# These codes refuse one request, such as a prompt that is too long. Others mean that the server is
# broken.
_REFUSED = (400, 413, 422)
# A real answer has some megabytes: log-probabilities of a prompt of images.
_MOST_BYTES = 1 << 28
_MOST_SECONDS = 1_000_000  # sockets and timers refuse some larger numbers, depending on the system


class _Later(Exception):
    """The server cannot be reached, or is too slow or too busy: it may answer later."""


class Client:
    """A client of one server."""

    def __init__(
        self,
        url: str,
        timeout: float,
        header: str = "Authorization: Bearer ",
        *,
        pauses: Sequence[float] = (),
    ) -> None:
        """Check the arguments (ValueError); nothing is sent yet.

        `header` ends where the key begins. `pauses` are the seconds before a server that is busy or
        does not answer is asked again.
        """
        parts = urlsplit(url)
        # The error does not repeat these parts: they may be keys.
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError(f"url must have no user, password or query; put a key into {KEY}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like http://HOST:PORT, not {url!r}")
        allowed = f"a number of seconds above 0, up to {_MOST_SECONDS}"
        checked_number("timeout", timeout, allowed, lambda seconds: 0 < seconds <= _MOST_SECONDS)
        self._header = header.partition(": ")
        self.url, self._path = url.rstrip("/"), parts.path.rstrip("/")
        self._timeout = timeout
        self._pauses = pauses
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        # Neither asks a proxy or follows a redirect.
        self._connection = partial(kind, parts.hostname, parts.port, timeout=timeout)

    def get(self, path: str) -> Any:
        """Return the JSON at `path`.

        Raises ModelError, which names the URL and the reason, if there is no JSON.
        """
        return self._ask(path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON and return the JSON of the answer.

        Raises TextError if the server refuses the request.
        """
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(KEY, "").strip()
        if key:
            if not key.isascii() or not key.isprintable():
                raise ModelError(
                    f"{KEY}: the key has characters that are not allowed in a key (its value is"
                    " not shown)"
                )
            name, _, before = self._header
            headers[name] = f"{before}{key}"
        for pause in self._pauses:
            with suppress(_Later):
                return self._once(path, body, headers, key)
            time.sleep(pause)
        try:
            return self._once(path, body, headers, key)
        except _Later as error:
            raise ModelError(str(error)) from None

    def _once(self, path: str, body: bytes | None, headers: dict[str, str], key: str) -> Any:
        try:
            with closing(self._connection()) as connection:
                connection.request(
                    "GET" if body is None else "POST", self._path + path, body, headers
                )
                response = connection.getresponse()
                content = response.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise http.client.HTTPException(f"the answer has more than {_MOST_BYTES} bytes")
            if 200 <= response.status < 300:
                return json.loads(content)
            answer = content[:500].decode("utf-8", "replace").strip()
            if key:  # some servers repeat it, and messages end up in files
                answer = answer.replace(key, "(key)")
            reason = f"HTTP {response.status} {response.reason}"
            if answer:
                reason += f": {answer}"
            if response.status in _REFUSED:
                raise TextError(f"{self.url}{path}: {reason}")
            later = response.status == 429 or response.status >= 500
        except TimeoutError:
            later, reason = True, f"no answer within {self._timeout:g} s"
        except (ConnectionRefusedError, socket.gaierror) as error:
            later, reason = True, str(error)
        except (OSError, http.client.HTTPException) as error:
            later, reason = True, f"the connection broke: {error!r}"
        except TextError:
            raise
        except (ValueError, RecursionError):
            later, reason = False, "the answer is not JSON"
        message = f"{self.url}{path}: {reason}"
        if later:
            raise _Later(message)
        raise ModelError(message)


def get_at(value: Any, kind: Any, *path: str | int) -> Any:
    """Return the value of type `kind` at `path` in an answer; raise ModelError naming the path."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise ModelError(f"the server's answer has no {'.'.join(map(str, path))}") from None
    if not isinstance(value, kind):
        raise ModelError(f"the server's answer has {value!r} at {'.'.join(map(str, path))}")
    return value


def number(value: Any) -> float:
    """Return a log-probability of an answer; raise ModelError if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"the server's answer has {value!r} for a log-probability")
    return float(value)
