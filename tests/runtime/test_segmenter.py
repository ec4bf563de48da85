"""The rule-based segmenter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vcs_runtime.bundle import RulesSpec
from vcs_runtime.errors import TextError
from vcs_runtime.segmenter import MAX_LONE_WORDS, Segmenter

SEGMENTER = Segmenter(RulesSpec("sentencex", "en"))
TEXTS = st.text(st.sampled_from(" \n\r\t.!?aAbB\"')(，。éÉ👍​ \u2028\u2029\x85…-1中")) | st.text()


def test_cuts_at_sentence_ends_and_keeps_white_space() -> None:
    text = "Mr. Smith walks in.  He sits!\n\nA dog barks at him.The end"
    assert SEGMENTER.split([text]) == [
        ["Mr. Smith walks in.  ", "He sits!\n\n", "A dog barks at him.", "The end"]
    ]


@settings(max_examples=500)
@given(TEXTS)
@example("A.\u2028")  # panics inside sentencex 1.0.32 when passed on as it is
@example("\n\n.")
def test_pieces_join_to_the_text_again(text: str) -> None:
    assert "".join(SEGMENTER.split([text])[0]) == text


@settings(max_examples=200)
@given(TEXTS)
def test_probabilities_are_one_exactly_where_pieces_end(text: str) -> None:
    [pieces], [probabilities] = SEGMENTER.split([text]), SEGMENTER.boundary_probabilities([text])
    assert probabilities.shape == (len(text),)
    assert probabilities.dtype == np.float32
    ends = np.cumsum([len(piece) for piece in pieces]) - 1
    assert np.flatnonzero(probabilities).tolist() == ends.tolist()


@pytest.mark.parametrize("text", ["a man walks in he sits down", "NSFW", "one\ttwo", "a\nb"])
def test_text_without_sentence_punctuation_is_refused(text: str) -> None:
    with pytest.raises(TextError, match=r"^generated: the text has no sentence punctuation"):
        SEGMENTER.sentences(text, "generated")


def test_a_long_text_with_one_full_stop_at_its_end_is_refused() -> None:
    assert SEGMENTER.sentences("word " * (MAX_LONE_WORDS - 1) + "end.", "x")
    with pytest.raises(TextError, match="101 words without sentence punctuation between them"):
        SEGMENTER.sentences("word " * MAX_LONE_WORDS + "end.", "x")


def test_one_sentence_is_a_text() -> None:
    assert SEGMENTER.sentences("A man throws a ball.", "x") == ["A man throws a ball."]


def test_paragraphs_are_cut_without_full_stops() -> None:
    assert SEGMENTER.sentences("a man walks\n\na dog barks", "x") == ["a man walks\n\n", "a dog barks"]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="^threshold"):
        SEGMENTER.split(["a."], threshold=0.5)
    with pytest.raises(TypeError, match="^texts"):
        SEGMENTER.split("a.")
