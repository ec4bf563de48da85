"""The examples of docs/guide/clusters.md: the session `spark` of `make nox`, which needs Java."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.blocks import Page, blocks, titled

PAGE = "docs/guide/clusters.md"


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers run the Python of this process, and nothing listens to other machines."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def test_several_columns_print_what_the_page_shows(tmp_path: Path) -> None:
    program = titled("docs/guide/clusters.md", "Several columns")
    [shown] = [block.body for block in blocks(program.page) if block.language == "text"]
    page = Page(tmp_path)
    page.run_program(program._replace(body=f"{program.body}spark.stop()\n"), shown)


def test_one_column_is_written(tmp_path: Path) -> None:
    Page(tmp_path).run_program(titled(PAGE, "One column"))
    assert list((tmp_path / "scores").glob("*.parquet"))
