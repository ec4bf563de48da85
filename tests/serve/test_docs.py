"""The examples of docs/guide/serve.md against servers that are started as the page says."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.blocks import Block, Page, blocks, titled
from support.waiting import HANGS_AFTER_S

PAGE = "docs/guide/serve.md"


@contextmanager
def server(page: Page, command: str) -> Iterator[str]:
    """Start a server on a free port, and stop it at the end; yields its port."""
    arguments = command.partition("#")[0].split()[1:]
    running = subprocess.Popen(
        [sys.executable, "-m", "vcs_runtime", *arguments, "--port", "0"],
        cwd=page.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr
        first, second = running.stderr.readline(), running.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", first)
        assert found, first
        assert "ready" in second
        yield found[1]
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANGS_AFTER_S) == 0
    finally:
        running.kill()
        running.communicate()


def at(port: str, block: Block) -> Block:
    return block._replace(body=block.body.replace(":8000", f":{port}"))


@pytest.mark.slow
def test_requests(tmp_path: Path) -> None:
    page = Page(tmp_path)
    command = titled("docs/guide/serve.md", "Start the server")
    [shown] = [block.body for block in blocks(command.page) if block.language == "text"]
    with server(page, command.body) as port:
        for title in ("Score a pair", "Score a line of a file", "Options of a request", "Errors"):
            page.run(at(port, titled(PAGE, title)))
        page.run_program(at(port, titled(PAGE, "A client in Python")), shown)


@pytest.mark.slow
def test_a_token(tmp_path: Path) -> None:
    page = Page(tmp_path)
    page.run(titled(PAGE, "Make a token"))
    with server(page, "vcs-runtime serve --token-file token") as port:
        page.run(at(port, titled(PAGE, "Send the token")))
        without = at(port, titled(PAGE, "Score a line of a file"))
        with pytest.raises(AssertionError, match="error"):
            page.run(without)
