"""Sentences found by their punctuation, marks and line ends."""

from __future__ import annotations

import csv
import json
import os
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.stories import story
from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.errors import TextError
from vcs_runtime.segmentation import rules as rules_module
from vcs_runtime.segmentation.rules import MAX_WORDS, Rules, doubt
from vcs_runtime.text.cleaning import clean_segments

RULES = Rules(RulesSpec("sentencex", "en"))
TEXTS = st.text(st.sampled_from(" \n\r\t.!?aAbB\"')(，。éÉ👍​ \u2028\u2029\x85…-1中")) | st.text()
STORY = "A man enters the kitchen. He opens the fridge. Mr. Smith sees him. They eat together."
SENTENCES = [
    "A man enters the kitchen.",
    "He opens the fridge.",
    "Mr. Smith sees him.",
    "They eat together.",
]
DATA = Path(os.environ.get("VCS_RUNTIME_DATA") or "data-folder-not-named")


def without_space(pieces: list[str]) -> list[str]:
    return [" ".join(piece.split()) for piece in pieces]


def test_cuts_at_sentence_ends_and_keeps_white_space() -> None:
    text = "Mr. Smith walks in.  He sits!\n\nA dog barks at him.The end"
    assert RULES.split(text) == [
        "Mr. Smith walks in.  ",
        "He sits!\n\n",
        "A dog barks at him.",
        "The end",
    ]


@settings(max_examples=500)
@given(TEXTS)
@example("A.\u2028")  # panics inside sentencex 1.0.32 when passed on as it is
@example("\n\n.")
@example("1.\n2.")
def test_pieces_join_to_the_text_again_and_each_has_a_letter(text: str) -> None:
    pieces = RULES.split(text)
    assert "".join(pieces) == text
    assert len(pieces) < 2 or all(any(map(str.isalpha, piece)) for piece in pieces)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"', '"'),
        ("'", "'"),
        ("“", "”"),
        ("„", "“"),
        ("‘", "’"),
        ("«", "»"),
        ("« ", " »"),
        ("「", "」"),
        ("`", "`"),
        ("```\n", "\n```"),
        ("(", ")"),
        ("[", "]"),
        ("{", "}"),
        ('("', '")'),
        ('Caption: "', '"'),
        ('Caption: "', ""),
        ("**", "**"),
    ],
)
def test_marks_around_a_text_hide_no_sentence(before: str, after: str) -> None:
    pieces = RULES.split(before + STORY + after)
    assert len(pieces) == len(SENTENCES)
    assert pieces[1:3] == [sentence + " " for sentence in SENTENCES[1:3]]


def test_marks_around_several_sentences_inside_a_text_hide_none() -> None:
    text = 'She says "Stop. Go home." and leaves. (He waits. "Nobody comes.") It rains.'
    assert without_space(RULES.split(text)) == [
        'She says "Stop.',
        'Go home." and leaves.',
        "(He waits.",
        '"Nobody comes.")',
        "It rains.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        'The sign reads "Stop!" and he stops.',
        'The watermark "CLIPS.COM" stays.',
        "He sits (as before).",
        '"Wait," he says.',
        "The dogs' owner isn't the cats' owner.",
    ],
)
def test_marks_around_one_sentence_stay_in_theirs(text: str) -> None:
    assert RULES.split(text) == [text]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\u2028", "\n\n", "\n \n"])
@pytest.mark.parametrize("mark", ["", "- ", "* ", "• ", "# "])
@pytest.mark.parametrize("stop", ["", "."])
def test_a_line_that_is_an_event_is_a_sentence(line_end: str, mark: str, stop: str) -> None:
    lines = [mark + sentence.removesuffix(".") + stop for sentence in SENTENCES]
    assert [piece.strip() for piece in RULES.split(line_end.join(lines) + ".")] == [
        *lines[:-1],
        lines[-1] + ".",
    ]


@pytest.mark.parametrize("number", ["{}. ", "{}) ", "({}) ", "{}: "])
@pytest.mark.parametrize("between", ["\n", " "])
def test_numbers_of_a_list_are_no_sentences(number: str, between: str) -> None:
    items = [number.format(i) + sentence for i, sentence in enumerate(SENTENCES, 1)]
    assert [piece.strip() for piece in RULES.split(between.join(items))] == items


def test_several_sentences_of_an_item_are_cut() -> None:
    text = "1. A man enters. He sits.\n2. A dog barks. It leaves."
    expected = ["1. A man enters.", "He sits.", "2. A dog barks.", "It leaves."]
    assert without_space(RULES.split(text)) == expected


@pytest.mark.parametrize("tail", [" 🎉", " 👍🏽👍🏽", "\n---", "\n***\n", " ..."])
def test_what_has_no_letter_is_no_sentence(tail: str) -> None:
    assert len(RULES.split(STORY + tail)) == len(SENTENCES)
    assert len(RULES.split(tail.strip() + " " + STORY)) == len(SENTENCES)


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_text_wrapped_at_a_width_keeps_its_sentences(width: int, quote: str) -> None:
    for seed in range(40):
        text = f"{quote}{story(seed, 4 + seed % 9)}{quote}"
        wrapped = "\n".join(textwrap.wrap(text, width))
        assert without_space(RULES.split(wrapped)) == without_space(RULES.split(text))


@pytest.mark.parametrize("small_letters", [False, True])
def test_lines_without_stops_are_events_and_not_a_wrapped_text(small_letters: bool) -> None:
    for seed in range(40):
        events = [
            sentence.strip().rstrip(".") for sentence in RULES.split(story(seed, 3 + seed % 9))
        ]
        if small_letters:
            events = [event[0].lower() + event[1:] for event in events]
        assert RULES.split("\n".join(events) + ".") == [
            *(event + "\n" for event in events[:-1]),
            events[-1] + ".",
        ]


def test_a_quotation_that_runs_over_wrapped_lines_is_one_sentence_as_in_one_line() -> None:
    text = 'The man in the long grey coat at the door says "I have never seen this place" and goes.'
    assert RULES.split(text) == [text]
    wrapped = "\n".join(textwrap.wrap(text, 50))
    assert RULES.split(wrapped) == [wrapped]


@pytest.mark.parametrize(
    "pieces", [["A dog. \n"], ["A dog. ", " \n\nIt", "A"], ["A dog.", "It"], []]
)
def test_pieces_that_do_not_join_to_the_text_are_refused(
    pieces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the versions 1.0.11 to 1.0.26 of sentencex cut some texts."""
    monkeypatch.setattr("sentencex.segment", lambda _, text: pieces)
    with pytest.raises(TextError, match=r"sentencex@.* do not join to the text again: install"):
        Rules(RulesSpec("sentencex", "en")).split("A dog. It")


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_text_longer_than_a_block_has_the_sentences_of_its_parts(quote: str) -> None:
    for seed in range(6):
        parts = [story(100 * seed + i, 3) for i in range(60)]
        assert len(" ".join(parts)) > 2 * rules_module._BLOCK
        expected = [sentence.strip() for part in parts for sentence in RULES.split(part)]
        pieces = RULES.split(quote + " ".join(parts) + quote)
        assert [piece.strip(' "') for piece in pieces] == expected


def test_a_sentence_longer_than_a_block_is_one() -> None:
    long = "word " * rules_module._BLOCK + "end."
    expected = ["A man sits. ", f"{long} ", "A dog barks."]
    assert RULES.split("".join(expected)) == expected


MARKS = [*".!?:,;'\"`()[]<>-*“”‘«»「」。…\n\r\t 1aA", "🎉", "\u2028", "\u0301"]


def seconds(unit: str, length: int) -> float:
    text = (unit * (length // len(unit) + 1))[:length]
    before = time.thread_time()
    RULES.split(text)
    return time.thread_time() - before


def grows_linearly(unit: str) -> bool:
    """Whether four times the text takes about four times the time, and not sixteen times.

    Other processes disturb single measurements, so it may be seen at the fifth time.
    """
    for _ in range(5):
        short, long = seconds(unit, 12_000), seconds(unit, 48_000)
        if long < 6 * max(short, 0.002):
            return True
    return False


UNITS = ["!:a", "?>(>,", "wow!(", "!(a", "a'", "'", "“", "»“", "「。", "\n", "\u2028", ".\n", "a\n"]


@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_length_of_a_text(unit: str) -> None:
    assert grows_linearly(unit)


@pytest.mark.slow
@pytest.mark.parametrize("first", MARKS)
def test_time_grows_with_the_length_for_every_pair_of_marks(first: str) -> None:
    assert [first + second for second in MARKS if not grows_linearly(first + second)] == []


@pytest.mark.parametrize("text", ["a man walks in he sits down", "NSFW", "one\ttwo", "a\nb"])
def test_text_without_sentence_punctuation_is_doubted(text: str) -> None:
    reason = doubt(text, RULES.split(text))
    assert reason is not None
    assert reason.startswith("the text has no sentence punctuation")


@pytest.mark.parametrize("before", ["", "A man sits. "])
def test_a_piece_too_long_for_a_sentence_is_doubted(before: str) -> None:
    text = before + "word " * (MAX_WORDS - 1) + "end."
    assert doubt(text, RULES.split(text)) is None
    text = before + "word " * MAX_WORDS + "end."
    reason = doubt(text, RULES.split(text))
    assert reason is not None
    assert reason.startswith("101 words have no sentence punctuation between them")


@pytest.mark.parametrize("word", ["a", "an", "the"])
def test_a_piece_of_too_many_short_words_is_doubted(word: str) -> None:
    words = [word] * MAX_WORDS
    assert doubt(f"{' '.join(words)}.", [f"{' '.join(words)}."]) is None
    text = f"{' '.join(words)} b."
    reason = doubt(text, [text])
    assert reason is not None
    assert reason.startswith("101 words have no sentence punctuation between them")


def test_paragraphs_are_doubted_and_one_sentence_is_not() -> None:
    text = "a man walks\n\na dog barks"
    assert RULES.split(text) == ["a man walks\n\n", "a dog barks"]
    assert doubt(text, RULES.split(text))
    assert doubt("A man throws a ball.", ["A man throws a ball."]) is None


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
    elif isinstance(value, str) and len(value.split()) > 3:
        yield value


def texts_of(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return texts_in(json.loads(text))
    return texts_in(list(csv.reader(text.splitlines(keepends=True))))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there: set VCS_RUNTIME_DATA")
def test_prose_is_split_as_sentencex_splits_it() -> None:
    folders = [DATA / "vcs-eval", DATA / "vcs-eval-159", DATA / "clip-cc"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    texts = {text for path in files for text in texts_of(path)}
    assert len(texts) > 7_000
    as_before = sum(
        clean_segments(RULES.split(text)) == clean_segments(sentencex.segment("en", text))
        for text in texts
    )
    assert as_before >= 0.995 * len(texts)
