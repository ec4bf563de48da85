"""Every Python and shell block of the README and the manual runs as printed, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.blocks import PYTHON, ROOT, SHELL, Block, Page, blocks, pages

# Run by `make test`; the other pages by `make test-all`.
FIRST_PAGE = "README.md"
# What a block without a language would hide from these tests.
PROGRAM = re.compile(r"^(?:\$ )?(?:vcs-runtime|pip|python3?|make|docker|curl|git) ", re.M)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_run(block: Block) -> bool:
    return bool(block.hidden) or (
        block.language in SHELL | PYTHON and not block.title and not block.not_run
    )


def is_named(block: Block) -> bool:
    """Whether a test names the page and the title of a block."""
    sources = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return any(f'"{name(block.page)}"' in text and f'"{block.title}"' in text for text in sources)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=name(page), marks=() if name(page) == FIRST_PAGE else pytest.mark.slow
        )
        for page in pages()
        if any(is_run(block) for block in blocks(page))
    ],
)
def test_blocks_run_as_printed(page: Path, tmp_path: Path) -> None:
    running = Page(tmp_path)
    for block in blocks(page):
        if is_run(block):
            running.run(block)


def test_every_program_is_in_a_block_with_its_language() -> None:
    wrong = [
        str(b)
        for page in pages()
        for b in blocks(page)
        if b.language in ("", "text") and PROGRAM.search(b.body)
    ]
    assert wrong == []


def test_blocks_with_a_title_are_run_by_a_test() -> None:
    wrong = [
        f"{b}: {b.title}"
        for page in pages()
        for b in blocks(page)
        if b.title and b.language in SHELL | PYTHON and not b.not_run and not is_named(b)
    ]
    assert wrong == []
