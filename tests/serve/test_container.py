"""The Containerfile: what it contains, runs, and checks for health. Building needs a registry."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support.command_line import vcs

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", " ")


def words(instruction: str) -> list[str]:
    """Return the command of an instruction."""
    [found] = re.findall(rf"^{instruction}\b.*?(\[.*\])$", TEXT, re.M)
    command: list[str] = json.loads(found)
    return command


def test_the_image_is_built_from_a_kit_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["*", "!kit"]
    assert not re.search(r"\bpip\b|https?://(?!127\.0\.0\.1)", TEXT)


def test_the_base_has_a_digest_that_must_be_named() -> None:
    """Without a value `FROM` is no name of an image, so a tag that moves is never taken."""
    assert set(re.findall(r"^FROM (\S+)", TEXT, re.M)) == {"${BASE}@${DIGEST}"}
    assert re.findall(r"^ARG DIGEST(.*)$", TEXT, re.M) == [""]
    [base] = re.findall(r"^ARG BASE=(\S+)$", TEXT, re.M)
    assert not set(":@") & set(base)  # podman takes no tag beside a digest


def test_the_image_runs_a_command_that_exists_as_a_user_without_rights() -> None:
    assert words("ENTRYPOINT") == ["vcs-runtime"]
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", TEXT, re.M)
    done = vcs(*words("CMD"))  # here are neither the bundle nor the token
    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert "/run/secrets/vcs-token" in done.stderr


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_image_is_healthy_once_the_server_is_ready(status: int, code: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        python, *arguments = words("HEALTHCHECK")
        assert python == "python3"
        script = [word.replace(":8000/", f":{server.server_port}/") for word in arguments]
        done = subprocess.run([sys.executable, *script], capture_output=True, check=False)
    assert done.returncode == code, done.stderr
