"""The built manual: nothing is loaded from elsewhere, and the search works from a disk."""

from __future__ import annotations

import json
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


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a manual as `make docs` does."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed; `make docs` installs it")
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "runtime", "export"))
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("[a page](missing.md)", "missing.md"),
        ("[a heading](#missing)", "#missing"),
        ("[a file](../missing.py)", "missing.py"),
        ("![a picture](https://example.org/a.png)", "https://example.org/a.png"),
        ("The words name docs/missing.md.", "docs/missing.md"),
    ],
)
def test_what_is_missing_or_elsewhere_ends_the_build(tmp_path: Path, line: str, missing: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{line}\n")
    settings = {
        "site_name": "manual", "theme": {"name": "material", "font": False},
        "hooks": [str(ROOT / "docs/hooks.py")], "validation": {"anchors": "warn"},
    }  # fmt: skip
    (tmp_path / "mkdocs.yml").write_text(json.dumps(settings))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    warnings = [text for text in done.stdout.splitlines() if text.startswith("WARNING")]
    assert (done.returncode, bool(warnings)) == (1, True), done.stdout
    assert all(missing in text for text in warnings)


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
