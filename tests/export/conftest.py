"""One tiny checkpoint for all export tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_bert import write_tiny_checkpoint

    return write_tiny_checkpoint(tmp_path_factory.mktemp("source") / "checkpoint")
