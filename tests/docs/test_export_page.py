"""The commands of docs/guide/export.md, with tiny stand-ins for the published checkpoints."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from support.blocks import Page, titled
from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.checkpoints.sat import write_tiny_sat
from support.snippets import run_snippet
from support.tiny_decoder import write_tiny_decoder
from support.tiny_sentence import write_tiny_family

PAGE = "docs/guide/export.md"


@pytest.fixture
def page(tmp_path: Path) -> Page:
    """The folder of the page's blocks, with the checkpoints that they name."""
    page = Page(tmp_path / "page")
    shutil.copytree(write_tiny_family(tmp_path, "mpnet"), page.folder / "all-mpnet-base-v2")
    write_tiny_nv_embed(page.folder / "NV-Embed-v2")
    write_tiny_decoder(page.folder / "Qwen3-Embedding-0.6B", "qwen3")
    write_tiny_sat(page.folder / "sat-12l-sm")
    (page.folder / "xlm-roberta-base").mkdir()
    shutil.copy(page.folder / "sat-12l-sm/tokenizer.json", page.folder / "xlm-roberta-base")
    return page


@pytest.mark.slow
@pytest.mark.parametrize("title", ["encoder", "authors", "decoder", "quantisation"])
def test_commands(page: Page, title: str) -> None:
    page.run(titled(PAGE, title))


@pytest.mark.slow
def test_python(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(
        "vcs_export.families.default.fetch_default", lambda: fetched.append("default")
    )
    with chdir(page.folder):
        run_snippet(PAGE, "python")
    assert fetched == ["default"]
    assert (page.folder / "my-bundle/bundle.json").exists()
