"""docs/reference/papers.md: each part of the papers has its place, and a test that exists."""

from __future__ import annotations

import re

from support.named_tests import ROOT, missing, named_in, rows, run_with_all_others

ROWS = rows("docs/reference/papers.md")
THERE = [row for row in ROWS if len(row) == 3]
ABSENT = [row for row in ROWS if len(row) == 2]


def test_every_part_has_a_place_and_a_test_and_what_is_not_here_a_reason() -> None:
    assert len(THERE) >= 35
    assert [row for row in THERE if "`" not in row[1] or not named_in(row[2])] == []
    assert ABSENT
    assert [row for row in ABSENT if not row[1].endswith(".")] == []


def test_every_test_that_is_named_exists_and_is_run_by_some_command() -> None:
    named = [test for row in THERE for test in named_in(row[2])]
    assert missing(named) == []
    assert [
        path for path, _ in named if not (run_with_all_others(path) or path.startswith("tests/parity/"))
    ] == []


def test_every_file_that_is_named_exists() -> None:
    named = {path for row in THERE for path in re.findall(r"`(\w[\w./-]*/[\w.-]+\.\w+)`", row[1])}
    assert len(named) >= 15
    folders = (ROOT, ROOT / "runtime", ROOT / "export")
    assert [path for path in sorted(named) if not any((folder / path).exists() for folder in folders)] == []


def test_every_equation_table_figure_and_prompt_of_the_papers_has_a_row() -> None:
    """Figures 1 and 3, which compare or illustrate, have their parts in other rows."""
    text = (ROOT / "docs/reference/papers.md").read_text("utf-8")
    method, visil = text.split("## ViSIL: the method")
    for part, page in (("Figure 1", method), *((f"(Table {n})", method) for n in (1, 2, 3)), *((f"Table {n}", visil) for n in (1, 2, 3, 4)),
                       *((f"Figure {n}", visil) for n in (2, 3, 4, 5, 6, 7, 8, 9, 10)), *((f"F.{n}", visil) for n in range(1, 8))):  # fmt: skip
        assert part in page, part
