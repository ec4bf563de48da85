"""The program of docs/guide/capi.md, built and run as the page says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support.blocks import ROOT, Page, same, titled
from support.processes import captured
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


COMMANDS = {
    "score.rs": ("rustc", "rustc -L vcs -C link-args=-Wl,-rpath,$PWD/vcs score.rs && ./score"),
    "score.go": (
        "go",
        'CGO_CFLAGS=-I$PWD/vcs CGO_LDFLAGS="-L$PWD/vcs -Wl,-rpath,$PWD/vcs" go run score.go',
    ),
}


@pytest.mark.toolchain
@pytest.mark.parametrize("name", COMMANDS)
def test_the_programs_in_rust_and_go_print_a_score(
    built: building.Built, tmp_path: Path, name: str
) -> None:
    compiler, command = COMMANDS[name]
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    assert f"\n{command}\n" in (ROOT / "docs/guide/capi.md").read_text("utf-8")
    (tmp_path / "vcs").symlink_to(built.file.parent)
    (tmp_path / name).write_text(titled("docs/guide/capi.md", name).body, "utf-8")
    environment = {**os.environ, "GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off"}
    done = captured(["sh", "-c", command], cwd=tmp_path, env=environment)
    assert same("VCS 0.981, flags 0", done.stdout), done.stderr
