"""Learned segmenters of the kind "words": their features, and where they cut texts."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from support.checkpoints.bert import tiny_tokenizer, write_tiny_checkpoint
from support.stories import story
from support.tiny_boundary import build_tiny_words, write_updates
from vcs_runtime import Segmenter
from vcs_runtime.segmentation.boundary_model import word_features


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    folder = tmp_path_factory.mktemp("words")
    checkpoint = write_tiny_checkpoint(folder / "checkpoint")
    updates = write_updates(checkpoint, folder / "updates.safetensors")
    return Segmenter.open(build_tiny_words(checkpoint, updates, folder / "bundle"), "cpu")


def bare_tokenizer() -> Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("man", 3),
        ("Man", 1),
        ("MAN", 2),
        ("A", 1),
        ("4th", 3),
        ("4TH", 2),
        ("“The", 1),
        ("é", 3),
        ("É", 1),
        ("--", 3),
    ],
)
def test_how_a_word_is_written(word: str, kind: int) -> None:
    tokenizer = bare_tokenizer()
    text = f"Dog {word} cat"
    capitals, ends = word_features(text, tokenizer.encode(text, add_special_tokens=False).offsets)
    assert (capitals[0], capitals[-1]) == (1, 3)
    assert set(capitals[1:-1].tolist()) == {kind}
    assert ends.tolist() == [2, *[3 + len(word)] * (len(ends) - 2), 7 + len(word)]


@pytest.mark.parametrize(("count", "small"), [(39, 3), (40, 0)])
def test_small_letters_say_nothing_in_a_text_that_hardly_has_capitals(
    count: int, small: int
) -> None:
    text = " ".join(["TV", *["man"] * count])
    capitals, _ = word_features(
        text, bare_tokenizer().encode(text, add_special_tokens=False).offsets
    )
    assert capitals[-count:].tolist() == [small] * count


def test_every_token_speaks_for_the_white_space_delimited_word_it_is_in() -> None:
    tokenizer = bare_tokenizer()
    text = " zebra-crossing\u2028\tMan's  x"
    encoding = tokenizer.encode(text, add_special_tokens=False)
    _, ends = word_features(text, encoding.offsets)
    for (start, _), end in zip(encoding.offsets, ends.tolist(), strict=True):
        assert not any(character.isspace() for character in text[start : end + 1])
        assert end + 1 == len(text) or text[end + 1].isspace()


def test_cuts_fall_after_words_only(segmenter: Segmenter) -> None:
    text = " ".join(story(seed) for seed in range(3)).replace(".", "")
    [probabilities] = segmenter.boundary_probabilities([text])
    places = np.flatnonzero(probabilities)
    assert len(places) == len(text.split())
    assert all(end + 1 == len(text) or text[end + 1] == " " for end in places)
    pieces = segmenter.split([text], threshold=float(np.median(probabilities[places])))[0]
    assert "".join(pieces) == text
    assert all(piece.endswith(" ") for piece in pieces[:-1])
    assert 1 < len(pieces) < len(text.split())


def test_capitals_matter_and_company_does_not(segmenter: Segmenter) -> None:
    texts = [story(seed).replace(".", "") for seed in range(12)]
    together = segmenter.boundary_probabilities(texts)
    for text, values in zip(texts, together, strict=True):
        np.testing.assert_array_equal(segmenter.boundary_probabilities([text])[0], values)
    lowered = segmenter.boundary_probabilities([text.lower() for text in texts])
    assert all((one != other).any() for one, other in zip(together, lowered, strict=True))


@pytest.mark.parametrize(
    "text", ["", "   ", "\u200b\ufeff", "\ufffd", "x", "[SEP] [CLS] [PAD]", "日本語のテキスト"]
)
def test_odd_texts_are_one_segment_or_none(segmenter: Segmenter, text: str) -> None:
    assert "".join(segmenter.split([text], threshold=0.999)[0]) == text
