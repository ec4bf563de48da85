"""Servers of scores; each test with limits of its own starts one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.waiting import HANGS_AFTER_S
from vcs_runtime import ScorerConfig
from vcs_runtime.scoring.options import Options

if TYPE_CHECKING:
    from support.score_server import Running, Serve


#: On a busy machine a client may take its time, and so may a scorer.
UNHURRIED: dict[str, Any] = {"timeout_s": HANGS_AFTER_S, "read_s": HANGS_AFTER_S}


@pytest.fixture
def serve(tiny_bundle: Path) -> Iterator[Serve]:
    """Starts servers with these limits, and stops them at the end of the test."""
    from support.score_server import Running
    from vcs_runtime.serve.limits import Limits

    running: list[Running] = []

    def start(
        token: bytes | None = None, options: Options = Options(), wait: bool = True, **limits: Any
    ) -> Running:
        server = Running(
            ScorerConfig(tiny_bundle, "cpu"), Limits(**(UNHURRIED | limits)), options, token
        )
        running.append(server)
        if wait:
            assert server.ready.wait(HANGS_AFTER_S)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def server(tiny_bundle: Path) -> Iterator[Running]:
    """One server with the usual sizes for tests that do not change it. It stayed silent."""
    from support.score_server import Running
    from vcs_runtime.serve.limits import Limits

    running = Running(ScorerConfig(tiny_bundle, "cpu"), Limits(**UNHURRIED), Options())
    assert running.ready.wait(HANGS_AFTER_S)
    yield running
    running.stop()
    assert len(running.lines) == 2
