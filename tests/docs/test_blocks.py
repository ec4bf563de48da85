"""Every Python and shell block of the README and the manual runs as printed, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.blocks import PYTHON, ROOT, SHELL, Block, Page, blocks, pages, same

# Run by `make test`; the other pages by `make test-all`.
FIRST_PAGE = "README.md"
# What a block without a language would hide from these tests.
PROGRAM = re.compile(r"^(?:\$ )?(?:vcs-runtime|pip|python3?|make|docker|curl|git) ", re.M)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_run(block: Block) -> bool:
    return bool(block.hidden) or (block.language in SHELL | PYTHON and not block.title and not block.not_run)


def is_named(block: Block) -> bool:
    """Whether a test names the page and the title of a block."""
    sources = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return any(f'"{name(block.page)}"' in text and f'"{block.title}"' in text for text in sources)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name(page), marks=() if name(page) == FIRST_PAGE else pytest.mark.slow)
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


def test_a_wrong_output_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\ntwo\n```\n\n```python\nprint(1 + 1)  # 3\n```\n")
    shell, python = blocks(page)
    for block in (shell, python):
        with pytest.raises(AssertionError):
            Page(tmp_path / "run").run(block._replace(page=ROOT / "README.md"))


def test_marks_and_hidden_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- run: touch made -->\ntext\n\n<!-- not run: needs a GPU -->\n```sh\nfalse\n```\n")
    hidden, marked = blocks(page)
    assert (hidden.hidden, marked.not_run, marked.body) == ("touch made", "needs a GPU", "false\n")
    assert is_run(hidden)
    assert not is_run(marked)


@pytest.mark.parametrize(
    ("printed", "equal"),
    [
        ("vcs 0.5929 0.3513", True),
        ("vcs 0.5929 0.3514", True),
        ("vcs 0.5930 0.3512", True),
        ("vcs 0.5931 0.3512", False),
        ("vcs 0.5929 0.3515", False),
        ("vcs 0.3513 0.5929", False),
        ("vcs 0.5929", False),
    ],
)
def test_the_last_of_four_decimals_may_be_one_more_or_less(printed: str, equal: bool) -> None:
    """Processors round differently."""
    assert same("vcs 0.5929 0.3513", printed) == equal


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("0.981", "0.980", True),
        ("0.981", "0.979", False),
        ("0.98", "0.97", False),
        ("vcs 0.1.100", "vcs 0.1.101", False),
    ],
)
def test_so_may_the_last_of_three_but_not_of_two_or_of_a_version(
    shown: str, printed: str, equal: bool
) -> None:
    assert same(shown, printed) == equal
