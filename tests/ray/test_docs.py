"""The examples of docs/guide/ray.md, each with a cluster of its own, as its reader would have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.blocks import Page, titled

PAGE = "docs/guide/ray.md"


@pytest.mark.ray
def test_a_file_of_pairs(tmp_path: Path) -> None:
    Page(tmp_path).run(titled("docs/guide/ray.md", "A file of pairs on this machine"))


@pytest.mark.ray
@pytest.mark.parametrize("title", ["A file of pairs, from Python", "A data set of Ray Data"])
def test_programs(title: str, tmp_path: Path) -> None:
    Page(tmp_path).run_program(titled(PAGE, title))
