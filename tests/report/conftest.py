"""A page that must be quiet, and axe-core, for the tests of reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens a file; fails if the console says anything, or a request leaves for anything but the file."""
    said: list[str] = []
    context = browser.new_context()

    def opened(path: Path, place: str = "") -> Any:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith(path.as_uri()) else said.append(r.url))
        page.goto(path.as_uri() + place)
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    context.close()
    assert said == []


#: The rules of axe-core for WCAG 2.0 to 2.2, levels A and AA.
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]


@pytest.fixture
def barriers() -> Callable[..., list[str]]:
    """Lists what axe-core finds against WCAG 2, levels A and AA, in a page as it is shown now."""
    from axe_playwright_python.sync_playwright import Axe

    def found(page: Any) -> list[str]:
        results = Axe().run(page, options={"runOnly": {"type": "tag", "values": WCAG}})
        assert results.response["passes"], "no rule was applied"
        return [
            f"{rule['id']}: {node['target']}: {node['failureSummary']}"
            for rule in results.response["violations"]
            for node in rule["nodes"]
        ]

    return found
