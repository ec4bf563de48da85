"""Marks that enclose a whole text."""

from __future__ import annotations

import pytest

from vcs_runtime.text.marks import unwrapped

TEXT = "A man's dog enters. It says “hello” (loudly)."


@pytest.mark.parametrize(
    ("before", "after"),
    [('"', '"'), ("'", "'"), ("“", "”"), ("« ", " »"), ("(", ")"), ('["', '"]'), ("``", "''")],
)
@pytest.mark.parametrize("space", ["", "\n "])
def test_a_text_inside_marks_loses_them(before: str, after: str, space: str) -> None:
    assert unwrapped(f"{space}{before}{TEXT}{after}{space}") == TEXT


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f" {TEXT}\n",
        '"Stop," he says. "Go."',
        "(A man enters.) He sits. (He leaves.)",
        "'Twas a man.",
        "He smiles :)",
        'He says: "Go',
        '"" ""',
        '""',
        '"',
        "( )",
        "",
    ],
)
def test_any_other_text_stays(text: str) -> None:
    assert unwrapped(text) == text


@pytest.mark.parametrize(("before", "after"), [('"', ""), ("“", ""), ("", "”"), ('["', "")])
def test_a_text_loses_the_half_of_a_pair(before: str, after: str) -> None:
    assert unwrapped(f"{before}{TEXT}{after}") == TEXT


def test_some_marks_around_marks_go_and_no_endless_number() -> None:
    assert unwrapped("„Ein Mann.“") == "Ein Mann."
    assert unwrapped("[('A man.')]") == "A man."
    assert unwrapped("(" * 200_000 + "A man." + ")" * 200_000).startswith("((")
