"""JSON over HTTP with the one server that the user named: no proxies, no redirects."""

from __future__ import annotations

import http.client
import json
import math
import os
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from vcs_runtime.errors import ModelError, TextError

KEY = "VCS_RUNTIME_API_KEY"
"""Environment variable with the key of a server that requires one."""

# These codes refuse one request, such as a prompt that is too long. Others mean that the server is broken.
_REFUSED = (400, 413, 422)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None  # urllib then raises HTTPError


class Client:
    """A client of one server.

    Attributes
    ----------
    url
        Address of the server without a slash at the end.
    """

    def __init__(self, url: str, timeout: float) -> None:
        """Check the arguments; nothing is sent yet.

        Parameters
        ----------
        url
            Address of the server, such as "http://gpu7:8000".
        timeout
            Seconds to wait for an answer.

        Raises
        ------
        ValueError
            `url` is not an http or https URL, or `timeout` is not above 0.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like http://HOST:PORT, not {url!r}")
        if not (timeout > 0 and math.isfinite(timeout)):
            raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open

    def get(self, path: str) -> Any:
        """Return the JSON at `path`; raise ModelError naming the URL and the reason if there is none."""
        return self._ask(path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON and return the JSON of the answer.

        Parameters
        ----------
        path
            Path on the server.
        body
            Object to send.

        Returns
        -------
        Any
            The answer.

        Raises
        ------
        TextError
            The server refuses this request (HTTP 400, 413 or 422); others may succeed.
        ModelError
            The server does not answer with JSON. The message names the URL and the reason.
        """
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with self._open(request, timeout=self._timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                message = error.read(500).decode("utf-8", "replace").strip()
            reason = f"HTTP {error.code} {error.reason}{': ' if message else ''}{message}"
            if error.code in _REFUSED:
                raise TextError(f"{self.url}{path}: {reason}") from None
        except TimeoutError:
            reason = f"no answer within {self._timeout:g} s"
        except urllib.error.URLError as error:
            timed_out = isinstance(error.reason, TimeoutError)
            reason = f"no answer within {self._timeout:g} s" if timed_out else str(error.reason)
        except (OSError, http.client.HTTPException) as error:
            reason = f"the connection broke: {error!r}"
        except ValueError:
            reason = "the answer is not JSON"
        raise ModelError(f"{self.url}{path}: {reason}")
