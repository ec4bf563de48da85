"""A tiny checkpoint of an encoder and one of a SaT, for all export tests that only read them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.checkpoints.bert import write_tiny_checkpoint

    return write_tiny_checkpoint(tmp_path_factory.mktemp("source") / "checkpoint")


@pytest.fixture(scope="session")
def sat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.checkpoints.sat import write_tiny_sat

    return write_tiny_sat(tmp_path_factory.mktemp("sat") / "checkpoint", lookahead=48, num_labels=3)
