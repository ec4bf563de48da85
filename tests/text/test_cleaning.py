"""Validation, cleaning, contractions, chunks, short words."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vcs_runtime.errors import TextError
from vcs_runtime.text import cleaning
from vcs_runtime.text.cleaning import (
    MAX_CHARACTERS,
    STOP_WORDS,
    as_written,
    check_text,
    clean_segments,
    expand_contractions,
    join_chunks,
    short_words,
    strip_punctuation,
    without_fragments,
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "is null"),
        (5, "must be a string, not int"),
        (b"bytes", "must be a string, not bytes"),
        ("", "empty"),
        (" \n\t ", "empty"),
        ("\u200b\u200d\ufeff", "empty"),
        ("\x01\x02", "empty"),
        ("a\0b", r"NUL character \(at position 1\)"),
        ("ab\ud800", r"lone surrogate U\+D800 \(at position 2\)"),
        ("\udfff", r"lone surrogate U\+DFFF \(at position 0\)"),
        ("x" * (MAX_CHARACTERS + 1), "1,000,001 characters"),
    ],
)
def test_refuses_what_cannot_be_scored_and_names_the_text(text: object, says: str) -> None:
    with pytest.raises(TextError, match=f"^generated: .*{says}"):
        check_text(text, "generated")


@pytest.mark.parametrize("text", ["a", "?!", "👍", "中文", "x" * MAX_CHARACTERS, "\u200bword"])
def test_accepts_any_other_text_unchanged(text: str) -> None:
    assert check_text(text, "reference") == text


@pytest.mark.parametrize(
    ("written", "expanded"),
    [
        ("It's late and they've gone.", "It is late and they have gone."),
        ("I can't, won't and shan't.", "I cannot, will not and shall not."),
        ("CAN'T I'M SHE'S", "CANNOT I am SHE IS"),
        ("I'd've shouldn't've", "I would have should not have"),
        ("it’s doesn’t", "it is does not"),
        ("'He's here,' she said.", "'He is here,' she said."),
        ("the man's hat, the boys' dog, James's", "the man's hat, the boys' dog, James's"),
        ("a lets shell shed its cause in the U.S.", "a lets shell shed its cause in the U.S."),
        ("rock'n'roll O'Brien '90s", "rock'n'roll O'Brien '90s"),
        ("where'd who'd the guy'll", "where did who would the guy will"),
        ("Let's go at five o'clock.", "Let us go at five of the clock."),
        (
            "éI'm, _can't can't_ 1'll 'he'll''she's' can't'can't",
            "éI'm, _can't can't_ 1'll 'he will''she is' cannot'can't",
        ),
        ("'Ti\u017f cold, '\u017f", "It is cold, '\u017f"),
    ],
)
def test_contractions_are_written_out(written: str, expanded: str) -> None:
    assert expand_contractions(written) == expanded


PIECES = st.sampled_from("' 's 'S 're n't let it ı he thiſ man women I é _ ,".split(" "))


@given(st.lists(PIECES | st.text()).map("".join))
@example("a''s it's women's he's")
@example(
    " ".join(
        f"{chr(code)}'s t{chr(code)}'s h{chr(code)}'s man's{chr(code)}" for code in range(0x2200)
    )
)
def test_contractions_are_those_of_the_pattern_in_the_whole_text(text: str) -> None:
    plain = text.replace("’", "'")
    expanded = cleaning._PATTERN.sub(cleaning._expand, plain)
    assert expand_contractions(plain) == expanded
    assert expand_contractions(expanded) == expanded


def test_punctuation_is_what_python_calls_punctuation() -> None:
    assert strip_punctuation(f"a{string.punctuation}b") == "ab"
    assert strip_punctuation("“quoted” — dash…") == "“quoted” — dash…"


def test_segments_are_stripped_and_empty_ones_dropped() -> None:
    assert clean_segments([" A man, a plan. ", "!?", "", "  ", "Go!"]) == ["A man a plan", "Go"]
    assert (clean_segments(["a\0 b.", "c"]), clean_segments([])) == (["a\0 b", "c"], [])


@pytest.mark.parametrize(
    ("size", "chunks"),
    [(1, ["a", "b", "c", "d"]), (3, ["a b c", "d"]), (4, ["a b c d"]), (9, ["a b c d"])],
)
def test_chunks_join_consecutive_segments_and_the_last_may_be_shorter(
    size: int, chunks: list[str]
) -> None:
    assert join_chunks(["a", "b", "c", "d"], size) == chunks


def test_short_texts_are_words_without_punctuation_and_stop_words() -> None:
    assert short_words("The man, HE throws a ball: don't!") == ["man", "throws", "ball", "dont"]
    assert short_words("It is what it is.") == []


def test_stop_words_are_the_ones_without_apostrophe() -> None:
    # NLTK's list has 179 entries (2021); 26 of them hold an apostrophe.
    assert len(STOP_WORDS) == 153
    assert not any("'" in word or word != word.lower() for word in STOP_WORDS)


def test_marks_numbers_and_labels_belong_to_the_sentence_after_them() -> None:
    pieces = ["•", "A man walks", "2", "a", "He sits", "Scene 3", "She runs", "😀"]
    joined = ["• A man walks", "2 a He sits", "Scene 3 She runs 😀"]
    assert without_fragments(pieces) == joined
    assert without_fragments(["1", "2"]) == ["1 2"]


@pytest.mark.parametrize(
    ("text", "chunks", "written"),
    [
        (
            "\"Stop!\" he said, action-packed.\n\nThe man's hat isn't his...",
            ["Stop he said actionpacked", "The mans hat is not his"],
            ['"Stop!" he said, action-packed.', "The man's hat isn't his..."],
        ),
        ("He left.Then (slowly) she.", ["He left", "Then slowly she"], None),
        ("- One.\n- Two", ["One", "Two"], ["- One.", "- Two"]),
        ('He left. "Go," he said.', ["He left", "Go he said"], ["He left.", '"Go," he said.']),
        ("So . # ( Then", ["So", "Then"], ["So .", "# ( Then"]),
        ("ok.</b>A man. $5 (", ["okb", "A man", "5"], ["ok.</b>", "A man.", "$5 ("]),
        ("他走了。她来了。", ["他走了。", "她来了。"], ["他走了。", "她来了。"]),
        ("A. A, A; B", ["A A", "A B"], ["A. A,", "A; B"]),
        ("A man runs fast", ["man", "runs", "fast"], ["man", "runs", "fast"]),
        ("He left.It's ok", ["He left", "It is ok"], ["He left", "It is ok"]),
        ("", [], []),
    ],
)
def test_chunks_are_found_as_they_were_written(
    text: str, chunks: list[str], written: list[str] | None
) -> None:
    expected = ["He left.", "Then (slowly) she."] if written is None else written
    assert as_written(text, chunks) == expected


@given(st.lists(st.text(" ab'’.,-!\n漢", max_size=12), min_size=1, max_size=5))
def test_what_is_written_gives_the_chunks_again(sentences: list[str]) -> None:
    text = " ".join(sentences)
    chunks = [c for s in sentences for c in clean_segments([expand_contractions(s)])]
    written = as_written(text, chunks)
    assert len(written) == len(chunks)
    stripped = ["".join(strip_punctuation(expand_contractions(w)).split()) for w in written]
    assert stripped == ["".join(chunk.split()) for chunk in chunks]
