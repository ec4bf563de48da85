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

from support.blocks import ROOT, blocks, commands
from vcs_runtime.cli import cli


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a manual as `make docs` does."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed; `make docs` installs it")
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "runtime", "export"))
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


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
def test_what_is_missing_or_elsewhere_ends_the_build(
    tmp_path: Path, line: str, missing: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{line}\n")
    settings = {
        "site_name": "manual",
        "theme": {"name": "material", "font": False},
        "hooks": [str(ROOT / "docs/hooks.py")],
        "validation": {"anchors": "warn"},
    }
    (tmp_path / "mkdocs.yml").write_text(json.dumps(settings))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    warnings = [text for text in done.stdout.splitlines() if text.startswith("WARNING")]
    assert (done.returncode, bool(warnings)) == (1, True), done.stdout
    assert all(missing in text for text in warnings)


@pytest.mark.parametrize(
    ("page", "words", "place", "target"),
    [
        ("index.html", "below_gate", "", "reference/vcs.html#13-flags"),
        ("reference/python.html", "below_gate", "", "reference/vcs.html#13-flags"),
        ("index.html", "which score", ":first-child", "guide/reading-scores.html"),
        ("index.html", "DataFrame", ":first-child", "quickstart.html#a-dataframe-of-scores"),
    ],
)
def test_the_search_works_from_a_disk_without_a_network(
    site: Path, browser: Any, page: str, words: str, place: str, target: str
) -> None:
    requests: list[str] = []
    opened = browser.new_page()
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto((site / page).as_uri())
    query = "document.activeElement.matches('[data-md-component=search-query]')"
    while not opened.evaluate(query):  # the page listens to keys when its scripts have run
        opened.keyboard.press("/")
    opened.keyboard.type(words)
    opened.wait_for_selector(f".md-search-result__item{place} a[href*='{target}']")
    opened.close()
    assert [url for url in requests if not url.startswith((site.as_uri(), "data:", "blob:"))] == []


def test_the_copy_button_takes_commands_alone(site: Path, browser: Any) -> None:
    opened = browser.new_page()
    seen = []
    for page in ("quickstart", "guide/serve"):
        opened.goto((site / f"{page}.html").as_uri())
        opened.evaluate(
            "document.addEventListener('copy', () => window.taken ="
            " document.getSelection().toString())"
        )
        shown = [block for block in blocks(ROOT / f"docs/{page}.md") if block.language == "console"]
        buttons = opened.locator(
            ".highlight:has(.gp) .md-code__button[title*=Copy], .highlight:has(.gp) .md-clipboard"
        )
        buttons.nth(len(shown) - 1).wait_for(state="attached")  # scripts add them
        assert buttons.count() == len(shown) > 0
        for button, block in zip(buttons.all(), shown, strict=True):
            button.click()
            expected = "".join(command for command, _ in commands(block)).rstrip("\n")
            seen.append((opened.evaluate("window.taken").strip(), expected))
    opened.close()
    assert [taken for taken, _ in seen] == [expected for _, expected in seen]


def test_the_home_page_scores_within_one_screen_below_tabs_of_tasks(
    site: Path, browser: Any
) -> None:
    opened = browser.new_page(viewport={"width": 1366, "height": 768})
    opened.goto((site / "index.html").as_uri())
    block = opened.locator(".highlight:has(.gp)").first
    box, colour = block.bounding_box(), "node => getComputedStyle(node).color"
    size = block.locator("code").evaluate("node => parseFloat(getComputedStyle(node).fontSize)")
    assert "vcs-runtime demo" in block.inner_text()
    assert box["y"] + box["height"] < 768
    assert size > 13
    assert block.locator(".go").first.evaluate(colour) == block.locator("code").evaluate(colour)
    tabs = opened.locator(".md-tabs__item").all_inner_texts()
    names = [tab.strip() for tab in tabs]
    assert names == "Start Score Compare Explain Train Serve Models Reference".split()
    opened.goto((site / "guide/reading-scores.html").as_uri())
    origin = opened.locator("details", has_text="ours default:cpu")
    assert not origin.locator("em").first.is_visible()
    opened.close()


def test_a_phone_shows_every_page_without_scrolling_sideways(site: Path, browser: Any) -> None:
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    wide = []
    for page in sorted(site.rglob("*.html")):
        opened.goto(page.as_uri())
        if opened.evaluate("document.documentElement.scrollWidth") > 390:
            wide.append(page.relative_to(site).as_posix())
    opened.close()
    assert wide == []


def test_a_desktop_shows_code_and_tables_without_scrolling_sideways(
    site: Path, browser: Any
) -> None:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    hidden = """() => [...document.querySelectorAll(
        "article pre > code, article .md-typeset__scrollwrap"
    )].filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.slice(0, 40))"""
    wide = {}
    for page in sorted(site.rglob("*.html")):
        opened.goto(page.as_uri())
        opened.wait_for_selector(".md-clipboard, .md-code__button, article", state="attached")
        if found := opened.evaluate(hidden):
            wide[page.relative_to(site).as_posix()] = found
    opened.close()
    assert wide == {}


def commands_of(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands_of(f"{name} {inner}", found)


def test_every_command_and_option_is_in_the_manual(site: Path) -> None:
    page = (site / "reference/cli.html").read_text("utf-8")
    parts = dict(
        re.findall(r'<h[23] id="[\w-]+">([\w -]+)<(.*?)(?=<h[23] |</article>)', page, re.S)
    )
    for name, command in commands_of("vcs-runtime", cli):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert re.search(rf"<code>[^<]*{parameter.opts[-1]}\b", parts[name]), (
                    name,
                    parameter.opts,
                )
