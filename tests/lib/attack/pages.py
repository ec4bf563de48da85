"""Door: reports with hostile ids, texts, names and titles, opened in a browser: nothing runs, nothing leaves."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attack.cases import Attack, Door, Ground, UnavailableError
from attack.checks import complaints_about, run
from attack.damage import STRINGS
from support.stories import story

PAYLOADS = (
    "<script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "\"><svg onload=window.pwned=1>", "'-window.pwned=1-'",
    "</script><script>window.pwned=1</script>", "<!--<script>", "]]>", "</title><script>window.pwned=1</script>", "javascript:window.pwned=1",
    "<iframe src=\"javascript:parent.pwned=1\">", "<a href=http://attacker.invalid/>x</a>", "<link rel=stylesheet href=http://attacker.invalid/x.css>",
    "<style>@import 'http://attacker.invalid'</style>", "</textarea><body onload=window.pwned=1>", "{{constructor.constructor('window.pwned=1')()}}",
    "\u2028window.pwned=1//", "__proto__", "constructor", "&lt;script&gt;", "</pre><object data=http://attacker.invalid>", "\\x3cscript>window.pwned=1",
)  # fmt: skip
_HASHES = (
    "",
    "#",
    "#pair-0",
    "#<img src=x onerror=window.pwned=1>",
    "#javascript:window.pwned=1",
    "#%00",
    "#/../..",
    "#__proto__",
)


def _hostile(rng: random.Random) -> str:
    return rng.choice((*PAYLOADS, *PAYLOADS, *STRINGS))


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    if program is None:
        raise UnavailableError("no Chromium is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise UnavailableError("playwright is not installed") from None
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])

        def attack(rng: random.Random, folder: Path) -> list[str]:
            page, found = _report(rng, folder, ground)
            return found if found or page is None else _visit(rng, browser, page)

        yield attack
        browser.close()


def _report(rng: random.Random, folder: Path, ground: Ground) -> tuple[Path | None, list[str]]:
    rows = []
    for i in range(rng.randint(1, 4)):
        texts = [" ".join((story(rng.randrange(99), 2), _hostile(rng), story(i, 1))) for _ in range(2)]
        rows.append({"id": f"{_hostile(rng)} {i}", "reference": texts[0], "generated": texts[1]})
    name = rng.choice(("pairs", 'a"b<c>', "x' onload='window.pwned=1", "<script>", "#x"))
    source, output = folder / f"{name}.jsonl", folder / "report.html"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        _hostile(rng).replace("\0", "").replace("\ud800", "\udcff").replace("\udfff", "\udc80")
        for _ in range(2)
    ]
    arguments: list[Any] = [
        "report",
        source,
        "-o",
        output,
        "--title",
        words[0],
        "--name",
        words[1],
        *ground.engine,
    ]
    done = run(*arguments)
    return output if output.exists() else None, complaints_about(done, arguments)


def _visit(rng: random.Random, browser: Any, report: Path) -> list[str]:
    said: list[str] = []
    context = browser.new_context()
    try:
        page = context.new_page()
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        own = (report.as_uri(), "blob:", "data:")
        page.on(
            "request",
            lambda request: None if request.url.startswith(own) else said.append(f"request: {request.url}"),
        )
        page.goto(report.as_uri() + rng.choice(_HASHES))
        page.wait_for_selector("body[data-ready]", timeout=120_000)
        for link in page.query_selector_all("a[href^='#']")[:3]:
            if link.is_visible():
                link.click()
        if page.evaluate("'pwned' in window"):
            said.append("a payload ran")
        planted = page.evaluate(
            "document.querySelectorAll('iframe, object, embed, img[onerror], svg[onload], [onload], [onerror], "
            'a[href^="http://attacker"], a[href^="javascript:"], link[href*=attacker]\').length'
        )
        if planted:
            said.append(f"{planted} elements of a payload are in the page")
    finally:
        context.close()
    return said


PAGES = Door("pages", 5, "reports with payloads in ids, texts, names and titles, in Chromium", _open)
