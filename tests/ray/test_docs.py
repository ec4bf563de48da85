"""The examples of docs/guide/clusters.md, each with a new cluster, as for its reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.blocks import Page, titled
from support.ray_processes import NOT_STARTED, PATIENT, started

PAGE = "docs/guide/clusters.md"


@pytest.fixture
def new_page(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Page]:
    for name, value in PATIENT.items():
        monkeypatch.setenv(name, value)
    return lambda: Page(tmp_path_factory.mktemp("page"))


@pytest.mark.ray
def test_a_file_of_pairs(new_page: Callable[[], Page]) -> None:
    block = titled("docs/guide/clusters.md", "A file of pairs on this machine")
    started(lambda: new_page().run(block), NOT_STARTED)


@pytest.mark.ray
@pytest.mark.parametrize("title", ["A file of pairs, from Python", "A data set of Ray Data"])
def test_programs(title: str, new_page: Callable[[], Page]) -> None:
    started(lambda: new_page().run_program(titled(PAGE, title)), NOT_STARTED)
