"""The program of docs/guide/capi.md, built and run as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.blocks import Page, titled
from vcs_runtime.capi import build as building
from vcs_runtime.errors import BuildError


@pytest.mark.toolchain
def test_the_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    try:
        building.find_tools()
    except BuildError as error:
        pytest.skip(str(error))
    page = Page(tmp_path)
    (tmp_path / "score.c").write_text(titled("docs/guide/capi.md", "score.c").body, "utf-8")
    page.run(titled("docs/guide/capi.md", "Build the library, compile and run"))
