"""Reports with hostile ids, texts, names and titles, opened in a browser: nothing runs, nothing leaves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, run
from attack.drawn import STORIES, STRINGS, cases
from support.stories import write_pairs

PAYLOADS = (
    "<script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "\"><svg onload=window.pwned=1>", "'-window.pwned=1-'",
    "</script><script>window.pwned=1</script>", "<!--<script>", "]]>", "</title><script>window.pwned=1</script>", "javascript:window.pwned=1",
    "<iframe src=\"javascript:parent.pwned=1\">", "<a href=http://attacker.invalid/>x</a>", "<link rel=stylesheet href=http://attacker.invalid/x.css>",
    "<style>@import 'http://attacker.invalid'</style>", "</textarea><body onload=window.pwned=1>", "{{constructor.constructor('window.pwned=1')()}}",
    "\u2028window.pwned=1//", "__proto__", "constructor", "&lt;script&gt;", "</pre><object data=http://attacker.invalid>", "\\x3cscript>window.pwned=1",
)  # fmt: skip
HASHES = (
    "",
    "#",
    "#pair-0",
    "#<img src=x onerror=window.pwned=1>",
    "#javascript:window.pwned=1",
    "#%00",
    "#/../..",
    "#__proto__",
)
FILES = ("pairs", 'a"b<c>', "x' onload='window.pwned=1", "<script>", "#x")
PLANTED = (
    "iframe, object, embed, img[onerror], svg[onload], [onload], [onerror], "
    'a[href^="http://attacker"], a[href^="javascript:"], link[href*=attacker]'
)
HOSTILE = st.sampled_from((*PAYLOADS, *PAYLOADS, *STRINGS))
ARGUMENTS = HOSTILE.map(
    lambda text: text.replace("\0", "").replace("\ud800", "\udcff").replace("\udfff", "\udc80")
)
TEXTS = st.builds(lambda *parts: " ".join(parts), STORIES, HOSTILE, STORIES)


class Shown(NamedTuple):
    """What a report shows, and the fragment that its address ends with."""

    pairs: list[tuple[str, str, str]]
    file: str = "pairs"
    title: str = "title"
    name: str = "name"
    fragment: str = ""


SHOWN = st.builds(Shown, st.lists(st.tuples(HOSTILE, TEXTS, TEXTS), min_size=1, max_size=4), st.sampled_from(FILES),
                  ARGUMENTS, ARGUMENTS, st.sampled_from(HASHES))  # fmt: skip


def check(browser: Any, shown: Shown, engine: Iterable[str]) -> None:
    with case_folder() as folder:
        source, report = folder / f"{shown.file}.jsonl", folder / "report.html"
        rows = [
            {"id": f"{name} {i}", "reference": a, "generated": b}
            for i, (name, a, b) in enumerate(shown.pairs)
        ]
        write_pairs(source, rows)
        run("report", source, "-o", report, "--title", shown.title, "--name", shown.name, *engine)
        if report.exists():
            visit(browser, report, shown.fragment)


def visit(browser: Any, report: Path, fragment: str) -> None:
    said: list[str] = []
    context = browser.new_context()
    try:
        page = context.new_page()
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: said.append(f"request: {request.url}"))
        page.goto(report.as_uri() + fragment)
        page.wait_for_selector("body[data-ready]", timeout=120_000)
        for link in page.query_selector_all("a[href^='#']")[:3]:
            if link.is_visible():
                link.click()
        own = tuple(f"request: {start}" for start in (report.as_uri(), "blob:", "data:"))
        assert not page.evaluate("'pwned' in window"), "a payload ran"
        assert not page.query_selector_all(PLANTED), "elements of a payload are in the page"
        asked = [line for line in said if not line.startswith(own)]
        assert not asked, f"the page did more: {asked}"
    finally:
        context.close()


@cases(4)
@given(shown=SHOWN)
def test_no_payload_runs_asks_or_becomes_an_element(
    browser: Any, engine: tuple[str, ...], shown: Shown
) -> None:
    check(browser, shown, engine)


def test_texts_that_become_markup_are_seen(browser: Any, engine: tuple[str, ...], plant: Any) -> None:
    as_text = "node.append(...children.filter((child) => child !== null));"
    as_markup = (
        "for (const child of children.filter((child) => child !== null)) "
        'if (typeof child === "string") node.insertAdjacentHTML("beforeend", child); else node.append(child);'
    )

    def draw_markup(script: Any) -> Any:
        assert as_text in script()
        return lambda: script().replace(as_text, as_markup)

    plant("vcs_runtime.report.page._script", draw_markup)
    texts = [f"A man walks. {payload} The dog runs." for payload in PAYLOADS[:4]]
    with pytest.raises(AssertionError, match="a payload|did more"):
        check(browser, Shown([(PAYLOADS[1], texts[0], texts[1])]), engine)
