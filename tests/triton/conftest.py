"""A model repository of a tiny bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from vcs_numba import Params
from vcs_runtime import Options, ScorerConfig
from vcs_runtime.triton.repository import Deployment, write_repository

OPTIONS = Options(chunk_size=2, params=Params(lct=1.0))


@pytest.fixture(scope="session")
def options() -> Options:
    """The options of the repository. They differ from the defaults, so that a lost one shows."""
    return OPTIONS


@pytest.fixture(scope="session")
def repository(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the model "vcs" with at most 4 items a request."""
    folder = tmp_path_factory.mktemp("models") / "repository"
    config = ScorerConfig(tiny_bundle, "cpu", threads=1)
    write_repository(folder, Deployment(config=config, options=OPTIONS, max_batch_size=4))
    return folder
