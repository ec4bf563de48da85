"""A page that must be quiet, and axe-core, for the tests of reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens a file; fails if the console says anything, or a request leaves for anything but the
    file.

    `place` is added to the address. `options` are those of a context: screen, colours, touch.
    """
    said: list[str] = []
    contexts = []

    def opened(path: Path, place: str = "", **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        own = (path.as_uri(), "blob:")  # a blob is made by the page itself
        page.on("request", lambda r: None if r.url.startswith(own) else said.append(r.url))
        page.goto(path.as_uri() + place)
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture
def phone() -> dict[str, Any]:
    """Options of `visit` for a phone: narrow, and pointed at by fingers."""
    return {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


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
