"""Content words of chunks: places, stems, classes, names, negation."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from support.processes import run_python
from vcs_runtime.words.english import stem
from vcs_runtime.words.reading import CLASSES, TextWords, read_words

CHUNKS = [
    "A man opens the red door slowly",
    "He doesn’t walk to Sam's café 42 metres away",
    "",
    "Then Sam says hello with a knife",
]


def shown(words: TextWords, chunks: list[str]) -> list[str]:
    """The words, cut out of the chunks by their places."""
    places = zip(words.chunk, words.start, words.stop, strict=True)
    return [chunks[chunk][start:stop] for chunk, start, stop in places]


def classes(chunk: str) -> dict[str, str]:
    words = read_words([chunk])
    numbers = words.class_scores.argmax(axis=1)
    return {word.form: CLASSES[number] for word, number in zip(words.lexemes, numbers, strict=True)}


def marked(flags: np.ndarray, words: TextWords) -> list[str]:
    return [word.form for word, flag in zip(words.lexemes, flags, strict=True) if flag]


def test_places_cut_the_words_out_of_their_chunks_exactly() -> None:
    words = read_words(CHUNKS)
    assert shown(words, CHUNKS) == [
        *("man", "opens", "red", "door", "slowly"),
        *("walk", "Sam's", "café", "42", "metres"),
        *("Sam", "says", "hello", "knife"),
    ]
    assert words.chunk.tolist() == [0] * 5 + [1] * 5 + [3] * 4
    assert [word.form for word in words.lexemes[5:8]] == ["walk", "sam", "café"]


def test_function_words_are_no_content_words_however_they_are_written() -> None:
    assert not len(read_words(["THE That's who's don't Can’t It IT's of", "nobody's into"]))


@pytest.mark.parametrize(
    "forms",
    [
        "open opens opened opening",
        "walk walks walked walking",
        "stop stops stopped stopping",
        "carry carries carried carrying",
        "watch watches watched",
        "see sees saw seen",
        "die dies died dying",
        "lie lies lay lain lying",
        "use uses used using",
        "run ran running",
        "leave leaves left leaving",
        "man men",
        "knife knives",
        "box boxes",
        "city cities",
        "slow slowly",
        "happy happily",
        "travel travelled travels",
        "make made making makes",
        "flee fled flees",
        "tie tied ties",
        "bus buses",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize(
    "pair",
    [
        "walk talk",
        "early ear",
        "glass glad",
        "door floor",
        "sing single",
        "house horse",
        "ring run",
    ],
)
def test_other_words_have_other_stems(pair: str) -> None:
    assert len({stem(word) for word in pair.split()}) == 2


def test_a_negator_reaches_the_first_content_word_within_three_words_of_its_chunk() -> None:
    def negated(*chunks: str) -> list[str]:
        words = read_words(chunks)
        return marked(words.is_negated, words)

    assert negated("He does not open the door") == ["open"]
    assert negated("He doesn't open the door") == ["open"]
    assert negated("There is no light without fire") == ["light", "fire"]
    assert negated("He never would have walked") == ["walked"]  # the third word
    assert negated("He never would have been walking") == []  # the fourth
    assert negated("He does not", "Open the door") == []


def test_names_are_capital_inside_a_chunk_and_never_small() -> None:
    words = read_words(
        ["Sam opens Doors", "The doors hide Anna", "Anna's dog sees Sam", "Fast cars wait"]
    )
    assert marked(words.is_name, words) == ["sam", "anna", "anna", "sam"]


@pytest.mark.parametrize("chunk", ["A MAN OPENS THE DOOR", "sam opens the door"])
def test_texts_in_one_case_have_no_names(chunk: str) -> None:
    words = read_words([chunk])
    assert not words.is_name.any()


def test_classes_follow_the_word_and_its_place() -> None:
    assert classes("A tall woman quickly closes the wooden door") == {
        "tall": "quality",
        "woman": "thing",
        "quickly": "quality",
        "closes": "action",
        "wooden": "quality",
        "door": "thing",
    }
    assert classes("He grabs the rope and climbs") == {
        "grabs": "action",
        "rope": "thing",
        "climbs": "action",
    }
    # The neighbours decide about words with several classes, and about words that nobody knows.
    assert classes("They walk in the hall")["walk"] == "action"
    assert classes("The walk ends")["walk"] == "thing"
    assert classes("He blorked the wall and then frimpled")["blorked"] == "action"
    assert classes("She takes the blorkstone from him")["blorkstone"] == "thing"


def test_class_scores_are_exact_sums_that_no_block_of_words_changes() -> None:
    words = read_words(CHUNKS * 1000)  # more than one block
    once = read_words(CHUNKS).class_scores
    assert np.array_equal(words.class_scores, np.tile(once, (1000, 1)))


@pytest.mark.parametrize(
    "chunk",
    [
        "他打开了门。",
        "Он открывает дверь",
        "彼はドアを開ける",
        "",
        "…!?",
        "\ud800\udfff \ud83d",
        "×÷",
    ],
)
def test_texts_without_latin_letters_have_no_words(chunk: str) -> None:
    words = read_words([chunk, chunk])
    assert len(words) == 0
    assert words.class_scores.shape == (0, 3)
    assert not len(read_words([]))


def test_words_beside_broken_characters_are_found() -> None:
    chunk = "\ud800door 开 łódź\udfff"
    assert shown(read_words([chunk]), [chunk]) == ["door", "łódź"]


def test_the_work_grows_in_proportion_to_the_text() -> None:
    def steps(count: int) -> int:
        """Count the lines of code that are run; a clock would depend on the machine."""
        chunks = [f"A man number {i % 50} opens the red door" for i in range(count)]
        read_words(chunks)
        lines = 0

        def trace(*_: object) -> object:
            nonlocal lines
            lines += 1
            return trace

        sys.settrace(trace)
        try:
            read_words(chunks)
        finally:
            sys.settrace(None)
        return lines

    assert steps(2000) < 2.1 * steps(1000)


def test_a_text_of_sixty_thousand_sentences_is_read() -> None:
    words = read_words(["He never opens the red door"] * 60_000)
    assert len(words) == 180_000
    assert words.is_negated.sum() == 60_000
    assert words.chunk[-1] == 59_999


def test_every_process_reads_alike() -> None:
    """Python's own hashes differ from process to process."""
    program = (
        "import sys, hashlib; from vcs_runtime.words.reading import read_words as r; w ="
        " r(sys.argv[1:]); print(hashlib.sha256(w.class_scores.tobytes() +"
        " w.features.tobytes()).hexdigest())"
    )
    outputs = {run_python("-c", program, *CHUNKS, check=True).stdout for _ in range(2)}
    assert len(outputs) == 1
