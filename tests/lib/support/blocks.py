"""The code blocks of the README and the manual: found, run from top to bottom, and compared with
what they show.

A page is run in a folder with the files of docs/examples. The conventions (tests/README.md has them
for writers):

- ```` ```sh ````: commands, which must end with 0. ```` ```console ````: lines that begin with `$ `
  are commands, the lines below a command are what it prints. `...` stands for anything, as in
  doctest.
- ```` ```python ````: run; the names of one block are there in the next. `print(x)  # 0.5` shows
  what is printed.
- ```` ```python title="name" ````: run by a test of its own, with `run_snippet(page, "name")`, or
  with `Page.run_program` or `Page.run` of `titled(page, "name")`.
- `<!-- run: command -->` prepares something that the page does not show.
- `<!-- not run: reason -->` stands right above a block that nothing runs.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from typing import Any, NamedTuple

from support.waiting import HANGS_AFTER_S, PROGRESS

ROOT = Path(__file__).parents[3]
SHELL, PYTHON = {"sh", "bash", "shell", "console"}, {"python", "py", "pycon"}
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|run): (?P<words>.+?) -->\n)?"
    r"(?:^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^ *(?P=fence)$)?",
    re.M | re.S,
)


class Block(NamedTuple):
    """A block of code, or a hidden command; `line` is that of its first line on the page."""

    page: Path
    line: int
    language: str
    title: str
    body: str
    not_run: str
    hidden: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The README, the manual, and the READMEs of folders."""
    found = [ROOT / "README.md", *ROOT.glob("*/README.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(set(found) - {ROOT / "tests/README.md"})


def blocks(page: Path) -> Iterator[Block]:
    """All blocks of a page, and its hidden commands."""
    text = page.read_text("utf-8")
    for found in _BLOCK.finditer(text):
        mark, info = found["mark"], (found["info"] or "").strip()
        if mark is None and found["fence"] is None:
            continue
        title = re.search(r'title="([^"]+)"', info)
        indent = len(found["indent"] or "")
        body = "".join(line[indent:] for line in (found["body"] or "").splitlines(keepends=True))
        at = found.start("body") if found["fence"] else found.start()
        yield Block(
            page=page,
            line=text[:at].count("\n") + 1,
            language=info.split()[0] if info else "",
            title=title[1] if title else "",
            body=body,
            not_run=found["words"] if mark == "not run" else "",
            hidden=found["words"] if mark == "run" else "",
        )


def titled(page: str, title: str) -> Block:
    """The block with this title on a page."""
    [block] = [block for block in blocks(ROOT / page) if block.title == title]
    return block


def commands(block: Block) -> Iterator[tuple[str, str | None]]:
    """The commands of a shell block, each with the output that is shown below it, if any."""
    if block.language != "console":
        yield block.body, None
        return
    for part in re.split(r"^\$ ", block.body, flags=re.M)[1:]:
        lines = part.splitlines(keepends=True)
        count = 1
        while count < len(lines) and _goes_on("".join(lines[:count])):
            count += 1
        yield "".join(lines[:count]), "".join(lines[count:]) or None


def _goes_on(command: str) -> bool:
    """Whether a command has more lines: a backslash ends it, or a quotation is open."""
    return command.rstrip("\n").endswith("\\") or command.count("'") % 2 == 1


def shown_by(block: Block) -> list[str]:
    """What a block of Python shows as printed."""
    assert not re.search(r"^ *print\($", block.body, re.M), (
        f"{block}: a print over several lines shows nothing"
    )
    return re.findall(r"^ *print\(.*\)  # (.+)$", block.body, re.M)


_DECIMALS = re.compile(r"(?<![\w.])\d*\.\d{3,}(?![\w.])")


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, but for the rounding of a last decimal."""
    known = set(_DECIMALS.findall(shown))

    def as_shown(number: re.Match[str]) -> str:
        last = Decimal(1).scaleb(Decimal(number[0]).as_tuple().exponent)
        return next(
            (one for one in known if abs(Decimal(one) - Decimal(number[0])) == last), number[0]
        )

    printed = _DECIMALS.sub(
        lambda number: number[0] if number[0] in known else as_shown(number), printed
    )
    return OutputChecker().check_output(
        shown.strip() + "\n", printed.strip() + "\n", ELLIPSIS | NORMALIZE_WHITESPACE
    )


class Page:
    """Runs the blocks of one page, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        shutil.copytree(ROOT / "docs/examples", folder, dirs_exist_ok=True)

    def run(self, block: Block) -> None:
        """Run a block, and assert that it prints what the page shows."""
        if block.hidden:
            self._shell(block.hidden, None, block)
        if block.language in SHELL:
            for command, shown in commands(block):
                self._shell(command, shown, block)
        elif block.language in PYTHON:
            self._python(block)

    def run_program(self, block: Block, shown: str | None = None) -> None:
        """Run a block of Python in a new process, and assert that it prints what the page shows."""
        (self.folder / "program.py").write_text(block.body, "utf-8")
        shown = shown or "\n".join(shown_by(block)) or None
        self._shell(f"{sys.executable} program.py 2> errors || (cat errors; exit 1)", shown, block)

    def _shell(self, command: str, shown: str | None, block: Block) -> None:
        paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        env = {**os.environ, "PATH": paths, "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=HANGS_AFTER_S,
        )
        assert done.returncode == 0, f"{block}: {command}\n{done.stdout}"
        if shown is not None:
            # On a slow machine a job says every half minute how far it is.
            printed = PROGRESS.sub("", done.stdout)
            assert same(shown, printed), f"{block}: {command}\nshown:\n{shown}\nprinted:\n{printed}"

    def _python(self, block: Block) -> None:
        code = compile("\n" * (block.line - 1) + block.body, str(block.page), "exec")
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(code, self.names)
        shown = shown_by(block)
        if shown:
            text = "\n".join(shown)
            assert same(text, printed.getvalue()), (
                f"{block}\nshown:\n{text}\nprinted:\n{printed.getvalue()}"
            )
