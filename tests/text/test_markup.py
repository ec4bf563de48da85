"""Cleaning of model output: think tags, Markdown, numbers of lists."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.waiting import HANGS_AFTER_S
from vcs_runtime.text.markup import CLEANINGS, markup_in, remove_markup

PIECES = [
    *"*_`~#|[]()<>-+=•\\ \n\r\t.:1 2a5",
    "<think>",
    "</think>",
    "1. ",
    "2. ",
    "Step 3: ",
    "**",
    "](",
    "```",
    "A man walks. ",
]
marked = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
chosen = st.sets(st.sampled_from(CLEANINGS), min_size=1)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("<think>Is it a man?</think>A man walks.", "A man walks."),
        ("<think>\nIs it?\n\nYes.\n</think>\n\nA man walks.", "A man walks."),
        ("<THINK>Is it?</Think>A man walks.", "A man walks."),
        ("Is it a man?</think>A man walks.", "A man walks."),
        ("A man walks.<think>Is it", "A man walks."),
        ("<think>one</think>A man walks.<think>two</think>He runs.", "A man walks.\nHe runs."),
        ("<think>a<think>b</think>c</think>A man walks.", "A man walks."),
        ("A man.<think>a<think>b</think>c</think>He walks.", "A man.\nHe walks."),
        ("<think>They say <think> here.</think>A man walks.", "A man walks."),
        ("<think>all of it", ""),
        ("I think <thinking> is 3 < 4.", "I think <thinking> is 3 < 4."),
    ],
)
def test_reasoning_in_think_tags_is_removed(text: str, clean: str) -> None:
    assert remove_markup(text, ["think"]) == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("# Summary\nA man walks.", "Summary\n\nA man walks."),
        ("A man walks\n### The end ###\nHe runs.", "A man walks\n\nThe end\n\nHe runs."),
        ("Summary\n=======\nA man walks.", "Summary\n\nA man walks."),
        ("**Scene 1:**\nA man walks.", "Scene 1:\n\nA man walks."),
        (
            "A **man** and ***his*** __dog__ *walk* _on_ ~~grass~~.",
            "A man and his dog walk on grass.",
        ),
        ("**A *red* ball** falls.", "A red ball falls."),
        ("这是**重点**内容。", "这是重点内容。"),
        ("A man walks. **The second sc", "A man walks. The second sc"),
        (
            "- A man walks\n  slowly\n* A dog runs\n• A bird\n+ A cat",
            "A man walks\n  slowly\n\nA dog runs\n\nA bird\n\nA cat",
        ),
        ("> A man\n>> walks.", "A man\nwalks."),
        ("A man.\n\n---\n\n* * *\nA dog.", "A man.\n\n\n\n\nA dog."),
        ("```text\nA man walks.\n```", "A man walks."),
        ("The sign says `STOP` and ``go``.", "The sign says STOP and go."),
        ("A [man](https://a.b/c_(d)) and ![a dog](dog.png).", "A man and a dog."),
        ("[![a dog](dog.png)](https://a.b)", "a dog"),
        ("A man.\n\n[1]: https://a.b", "A man."),
        ("|Time|Event|\n|:--|---|\n| 0:01 | A man walks |", "Time, Event\n\n0:01, A man walks"),
        ("> # Summary\n> - **A man**", "Summary\n\nA man"),
    ],
)
def test_marks_of_markdown_are_removed_and_their_words_stay(text: str, clean: str) -> None:
    assert remove_markup(text, ["markdown"]) == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            "1. A man walks\n2) A dog runs\n(3) A bird\nStep 4: A cat",
            "A man walks\n\nA dog runs\n\nA bird\n\nA cat",
        ),
        ("1. A man walks\n   slowly\n2. A dog runs", "A man walks\n   slowly\n\nA dog runs"),
        ("1.\nA man walks.\n2.\nA dog runs.", "A man walks.\n\nA dog runs."),
        ("1. Step 1: A man walks.", "A man walks."),
        (
            "Two scenes: 1. A man walks. 2. A dog runs.",
            "Two scenes:\n\nA man walks.\n\nA dog runs.",
        ),
        ("1. A man walks. 2. A dog runs.", "A man walks.\n\nA dog runs."),
        (
            'He says "No." (1) A man (2) runs. (2) A dog.',
            'He says "No."\n\nA man (2) runs.\n\nA dog.',
        ),
    ],
)
def test_numbers_of_lists_are_removed_and_items_stand_apart(text: str, clean: str) -> None:
    assert remove_markup(text, ["list-numbers"]) == clean


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[00:12-00:18] A man walks. (1:05) He sits.", ["time-stamps"]),
        ("1\n00:00:01,000 --> 00:00:03,500\nA man walks.", ["time-stamps"]),
        ("<think>x</think>A **man** walks.", ["think", "markdown"]),
        ("At 10:30 a man walks 2*3 steps.", []),
    ],
)
def test_markup_is_named_and_time_stamps_are_removed(text: str, found: list[str]) -> None:
    assert markup_in(text) == found
    assert markup_in(remove_markup(text, found)) == []


@pytest.mark.parametrize(
    "text",
    [
        "A man walks. A dog runs.",
        "  He lives at number\n5. Then he moves to 1.5 rooms.\n1984. Years pass.\n\n",
        "It is 2*3*4 or 3 * 4, 2*3 rooms in a 5* hotel, snake_case, f**k, C# and #1.",
        "[Music] (laughs) [Narrator]: Hello [1].",
        "He has 3 dogs. 2. The dogs bark. No list: 1.",
        "a < b > c | d -- e ~ f = g",
        "\r\n A man\twalks…\r\n",
        "他走了。狗跑了。",
    ],
)
def test_texts_without_markup_stay_as_they_are_to_the_byte(text: str) -> None:
    assert remove_markup(text, CLEANINGS) == text


@given(st.text("abc .,!?'\"é中\n\r\t", max_size=80))
def test_words_and_sentences_stay_as_they_are(text: str) -> None:
    assert remove_markup(text, CLEANINGS) == text


@given(marked, chosen)
def test_a_clean_text_stays_as_it_is(text: str, cleanings: set[str]) -> None:
    once = remove_markup(text, cleanings)
    assert remove_markup(once, cleanings) == once


@given(marked)
def test_cleaning_invents_no_words(text: str) -> None:
    assert set(remove_markup(text, CLEANINGS)) <= set(text) | set("\n, ")


def test_marks_nested_beyond_all_reason_are_removed_too() -> None:
    text = "[" * 30 + "a man" + "](b)" * 30
    assert remove_markup(text, ["markdown"]) == remove_markup(
        remove_markup(text, ["markdown"]), ["markdown"]
    )
    assert "[" not in remove_markup(text, ["markdown"])


# Quadratic time would take hours; linear time takes some seconds.
HOSTILE = """
from vcs_runtime.text.markup import CLEANINGS, remove_markup
for unit in ("*", "<think>", "|", "[", "7"):
    remove_markup(unit * (1_000_000 // len(unit)), CLEANINGS)
for unit in ("*", "_", "`", "~", "#", "(", "](", "[x](", "![", " #", "*a ", "**a ", "_a ", "`a ", \
"~~a ", "* a",
             " ", "\\n", "1. ", ". 1. ", "1.\\n", "(1) ", "Step ", "a   ", "- ", "> ", "a |", \
"<", "</think>"):
    remove_markup("a" + unit * (50_000 // len(unit)) + "b", CLEANINGS)
    remove_markup("-" + unit * (50_000 // len(unit)) + "b", CLEANINGS)
for opening in ("~~", "*", "**", "_", "`", "[", "[x](", "| ", "# ", "#", "<think>", "1. ", "- ", \
"> ", "```"):
    for letter in ("a", " ", "(a)", "#", "-", "1"):
        remove_markup(opening + letter * 10_000 + "!", CLEANINGS)
"""


def test_hostile_texts_take_linear_time() -> None:
    subprocess.run([sys.executable, "-c", HOSTILE], check=True, timeout=HANGS_AFTER_S)
