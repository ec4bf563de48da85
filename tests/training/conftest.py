"""Each test closes the background scorers that it opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vcs_runtime import training


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    training.close()
