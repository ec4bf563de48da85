"""The examples of docs/guide/ray.md, each with a cluster of its own, as its reader would have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.blocks import Page, titled

PAGE = "docs/guide/ray.md"


@pytest.mark.ray
def test_a_file_of_pairs(tmp_path: Path) -> None:
    Page(tmp_path).run(titled("docs/guide/ray.md", "file"))


@pytest.mark.ray
@pytest.mark.parametrize("title", ["python", "data set"])
def test_programs(title: str, tmp_path: Path) -> None:
    Page(tmp_path).run_program(titled(PAGE, title))
