"""The built manual: nothing is loaded from elsewhere, and the search works from a disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from support.blocks import ROOT
from vcs_runtime.cli import cli


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="MkDocs is not installed; `make docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "runtime", "export"))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return folder


@pytest.mark.parametrize("page", ["index.html", "reference/python.html"])
def test_the_search_works_from_a_disk_without_a_network(site: Path, browser: Any, page: str) -> None:
    requests: list[str] = []
    opened = browser.new_page()
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto((site / page).as_uri())
    opened.keyboard.press("/")
    opened.keyboard.type("below_gate")
    opened.wait_for_selector(".md-search-result__link")
    links = [link.get_attribute("href") for link in opened.query_selector_all(".md-search-result__link")]
    opened.close()
    assert any("reference/vcs.html#13-flags" in link for link in links)
    assert [url for url in requests if not url.startswith((site.as_uri(), "data:", "blob:"))] == []


def test_a_phone_shows_every_page_without_scrolling_sideways(site: Path, browser: Any) -> None:
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    wide = []
    for page in sorted(site.rglob("*.html")):
        opened.goto(page.as_uri())
        if opened.evaluate("document.documentElement.scrollWidth") > 390:
            wide.append(page.relative_to(site).as_posix())
    opened.close()
    assert wide == []


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(f"{name} {inner}", found)


def test_every_command_and_option_is_in_the_manual(site: Path) -> None:
    page = (site / "reference/cli.html").read_text("utf-8")
    parts = dict(re.findall(r'<h[23] id="[\w-]+">([\w -]+)<(.*?)(?=<h[23] |</article>)', page, re.S))
    for name, command in commands("vcs-runtime", cli):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert re.search(rf"<code>[^<]*{parameter.opts[-1]}\b", parts[name]), (name, parameter.opts)
