"""Chromium, and a page that must be quiet, for the tests of reports."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


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
