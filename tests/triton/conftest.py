"""A tiny bundle, and a model repository that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vcs_numba import Params
from vcs_runtime.scoring.options import Options
from vcs_runtime.triton.repository import Deployment, write_repository

OPTIONS = Options(chunk_size=2, params=Params(lct=1.0))


@pytest.fixture(scope="session")
def options() -> Options:
    """Of the repository below; not the defaults, so that a lost one shows."""
    return OPTIONS


@pytest.fixture(scope="session")
def repository(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the model "vcs", which takes 4 items at most."""
    folder = tmp_path_factory.mktemp("models") / "repository"
    deployment = Deployment(
        bundle=str(tiny_bundle), device="cpu", options=OPTIONS, opening={"threads": 1}, max_batch_size=4
    )
    write_repository(folder, deployment)
    return folder
