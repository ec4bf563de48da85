"""Reports with hostile ids, texts, names and titles in a browser: nothing runs or leaves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, run
from attack.drawn import STORIES, STRINGS, cases, for_argv
from support.stories import write_pairs

PAYLOADS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "'-window.pwned=1-'",
    "</script><script>window.pwned=1</script>",
    "<!--<script>",
    "]]>",
    "</title><script>window.pwned=1</script>",
    "javascript:window.pwned=1",
    '<iframe src="javascript:parent.pwned=1">',
    "<a href=http://attacker.invalid/>x</a>",
    "<link rel=stylesheet href=http://attacker.invalid/x.css>",
    "<style>@import 'http://attacker.invalid'</style>",
    "</textarea><body onload=window.pwned=1>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\u2028window.pwned=1//",
    "__proto__",
    "constructor",
    "&lt;script&gt;",
    "</pre><object data=http://attacker.invalid>",
    "\\x3cscript>window.pwned=1",
)
FRAGMENTS = (
    "",
    "#",
    "#pair-0",
    f"#{PAYLOADS[1]}",
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
ARGUMENTS = HOSTILE.map(for_argv)
TEXTS = st.tuples(STORIES, HOSTILE, STORIES).map(" ".join)


def check(
    browser: Any,
    engine: Iterable[str],
    rows: list[Any],
    file: str,
    words: Iterable[str],
    fragment: str,
) -> None:
    with case_folder() as folder:
        source, report = folder / f"{file}.jsonl", folder / "report.html"
        write_pairs(source, rows)
        run("report", source, "-o", report, *words, *engine)
        if report.exists():
            visit(browser, report, fragment)


def visit(browser: Any, report: Path, fragment: str) -> None:
    did: list[str] = []
    context = browser.new_context()
    try:
        page = context.new_page()
        page.on("console", lambda message: did.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: did.append(f"error: {error}"))
        page.on(
            "dialog", lambda dialog: (did.append(f"dialog: {dialog.message}"), dialog.dismiss())
        )
        page.on("request", lambda request: did.append(request.url))
        page.goto(report.as_uri() + fragment)
        page.wait_for_selector("body[data-ready]")
        for link in page.query_selector_all("a[href^='#']")[:3]:
            if link.is_visible():
                link.click()
        assert not page.evaluate("'pwned' in window"), "a payload ran"
        assert not page.query_selector_all(PLANTED), "a payload became an element"
        more = [each for each in did if not each.startswith((report.as_uri(), "blob:", "data:"))]
        assert not more, f"a payload did {more}"
    finally:
        context.close()


@cases(3)
@given(
    pairs=st.lists(st.tuples(HOSTILE, TEXTS, TEXTS), min_size=1, max_size=4),
    file=st.sampled_from(FILES),
    title=ARGUMENTS,
    name=ARGUMENTS,
    fragment=st.sampled_from(FRAGMENTS),
)
def test_no_payload_runs_asks_or_becomes_an_element(
    browser: Any,
    engine: tuple[str, ...],
    pairs: list[Any],
    file: str,
    title: str,
    name: str,
    fragment: str,
) -> None:
    rows = [
        {"id": f"{each} {i}", "reference": a, "generated": b}
        for i, (each, a, b) in enumerate(pairs)
    ]
    check(browser, engine, rows, file, ("--title", title, "--name", name), fragment)


def test_texts_that_become_markup_are_seen(
    browser: Any, engine: tuple[str, ...], plant: Any
) -> None:
    as_text = "node.append(...children.filter((child) => child !== null));"
    as_markup = (
        "for (const child of children.filter((child) => child !== null)) if (typeof child ==="
        ' "string") node.insertAdjacentHTML("beforeend", child); else node.append(child);'
    )

    def make(script: Any) -> Any:
        assert as_text in script()
        return lambda: script().replace(as_text, as_markup)

    plant("vcs_runtime.report.page._script", make)
    reference, generated = (f"A man walks. {payload} The dog runs." for payload in PAYLOADS[:2])
    with pytest.raises(AssertionError, match="a payload"):
        check(
            browser,
            engine,
            [{"id": "a", "reference": reference, "generated": generated}],
            "pairs",
            (),
            "",
        )
