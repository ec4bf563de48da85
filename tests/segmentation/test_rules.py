"""Sentences found by their punctuation."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencex import get_sentence_boundaries

from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.errors import TextError
from vcs_runtime.segmentation.segmenter import MAX_MARKS, MAX_WORDS, Rules, doubt

RULES = Rules(RulesSpec("sentencex", "en"))
TEXTS = st.text(st.sampled_from(" \n\r\t.!?aAbB\"')(，。éÉ👍​ \u2028\u2029\x85…-1中")) | st.text()


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
def test_pieces_join_to_the_text_again_and_are_those_of_the_rules(text: str) -> None:
    pieces = RULES.split(text)
    assert "".join(pieces) == text
    if not re.search(r"[^\S \n\r\t]", text):
        found = [boundary["text"].strip() for boundary in get_sentence_boundaries("en", text)]
        assert [piece.strip() for piece in pieces if piece.strip()] == [
            piece for piece in found if piece
        ]


@pytest.mark.parametrize(
    "boundaries",
    [[(0, 9), (9, 12), (0, 4)], [(0, 9)], [(0, 9), (8, 12)], []],
    ids=["garbled", "lost", "overlapping", "none"],
)
def test_pieces_that_do_not_join_to_the_text_are_refused(
    boundaries: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the versions 1.0.11 to 1.0.26 of sentencex cut texts with empty lines."""
    monkeypatch.setattr(
        "sentencex.segment", lambda _, text: [text[start:end] for start, end in boundaries]
    )
    with pytest.raises(TextError, match=r"sentencex@.* do not join to their text again: install"):
        Rules(RulesSpec("sentencex", "en")).split("A dog. \n\nIt")


def test_white_space_that_is_left_out_between_long_parts_is_kept() -> None:
    """sentencex reads 10,000 characters at a time, and loses an empty line between two parts."""
    for before in range(9_950, 10_050):
        text = (
            f"{'A dog barks. ' * (before // 13)}{'x' * (before % 13)}.\n\nA man sits down. It"
            " rains."
        )
        pieces = RULES.split(text)
        assert "".join(pieces) == text
        assert pieces[-2:] == ["A man sits down. ", "It rains."]


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
    assert reason.startswith("101 words without sentence punctuation between them")


@pytest.mark.parametrize("word", ["a", "an", "the"])
def test_a_piece_of_too_many_short_words_is_doubted(word: str) -> None:
    words = [word] * MAX_WORDS
    assert doubt(f"{' '.join(words)}.", [f"{' '.join(words)}."]) is None
    text = f"{' '.join(words)} b."
    reason = doubt(text, [text])
    assert reason is not None
    assert reason.startswith("101 words without sentence punctuation between them")


def test_paragraphs_are_doubted_and_one_sentence_is_not() -> None:
    text = "a man walks\n\na dog barks"
    assert RULES.split(text) == ["a man walks\n\n", "a dog barks"]
    assert doubt(text, RULES.split(text))
    assert doubt("A man throws a ball.", ["A man throws a ball."]) is None


@pytest.mark.parametrize("marks", ["'", "“", "「。", "a'"])
def test_texts_that_would_hold_the_rules_for_minutes_are_refused(marks: str) -> None:
    """sentencex takes quadratic time: a million apostrophes take 71 s."""
    text = f"A man sits. {marks * MAX_MARKS}"
    with pytest.raises(TextError, match=r"quotation marks and ends of sentences, more than 50,000"):
        RULES.split(text + marks)
    assert "".join(RULES.split(f"A man's dog. {marks * 100}")) == f"A man's dog. {marks * 100}"
