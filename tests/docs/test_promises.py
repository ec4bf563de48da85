"""Every promise of docs/reference/promises.md names tests that exist and run."""

from __future__ import annotations

from support.named_tests import missing, named_in, rows, run_with_all_others

ROWS = rows("docs/reference/promises.md")
NAMED = [test for row in ROWS for test in named_in(row[-1])]


def test_every_promise_has_a_figure_or_none_and_a_test() -> None:
    assert len(ROWS) >= 30
    assert [row for row in ROWS if len(row) != 3 or not row[0].endswith(".") or not named_in(row[2])] == []


def test_every_test_that_is_named_exists() -> None:
    assert missing(NAMED) == []


def test_the_tests_that_are_named_are_run_with_all_others() -> None:
    assert [path for path, _ in NAMED if not run_with_all_others(path)] == []
