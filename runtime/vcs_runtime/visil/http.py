"""JSON to and from a server that the user has named: no proxy, no redirect to anywhere else."""

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
"""The environment variable that holds a server's key, if it wants one."""


# What a server says to one request, too long for it or with images that it does not take, not to all.
_REFUSED = (400, 413, 422)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None  # and so an HTTPError


class Client:
    """A server at `url`, such as "http://gpu7:8000"."""

    def __init__(self, url: str, timeout: float) -> None:
        """Nothing is sent yet. Raises ValueError for what is no http(s) URL, or no time."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like http://HOST:PORT, not {url!r}")
        if not (timeout > 0 and math.isfinite(timeout)):
            raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open

    def get(self, path: str) -> Any:
        """The JSON at `path`. Raises ModelError naming URL and reason."""
        return self._ask(path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The server's JSON. Raises ModelError naming URL and reason; TextError: it refuses this one."""
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
                said = error.read(500).decode("utf-8", "replace").strip()
            reason = f"HTTP {error.code} {error.reason}{': ' if said else ''}{said}"
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
