"""The `Segmenter`: which of a bundle's segmenters splits a text, and how."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.stories import story
from vcs_runtime import BundleError, DeviceError, Segmenter, TextError
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.segmentation import segmenter
from vcs_runtime.segmentation.boundary_model import cut
from vcs_runtime.segmentation.rules import MAX_WORDS

TEXTS = st.text(st.sampled_from(" \n\r\t.!?aAbB\"')(，。éÉ👍​ \u2028\u2029\x85…-1中")) | st.text()
PUNCTUATED = story(1, 5)
STRIPPED = PUNCTUATED.replace(".", "")
UNTRUSTED = "word " * MAX_WORDS + "end. A man sits."  # the punctuation of its first half is lost


@pytest.fixture(scope="module")
def rules(tiny_bundle: Path) -> Iterator[Segmenter]:
    with Segmenter.open(tiny_bundle, device="cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def learned(sat_bundle: Path) -> Iterator[Segmenter]:
    with Segmenter.open(sat_bundle, device="cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def mixed(mixed_bundle: Path) -> Iterator[Segmenter]:
    with Segmenter.open(mixed_bundle, device="cpu") as opened:
        yield opened


def test_rules_keep_white_space(rules: Segmenter) -> None:
    assert rules.split(["A man sits.  He runs!\n\nA dog", ""]) == [
        ["A man sits.  ", "He runs!\n\n", "A dog"],
        [],
    ]


@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=TEXTS)
def test_probabilities_are_one_exactly_where_rules_cut(rules: Segmenter, text: str) -> None:
    [pieces], [probabilities] = rules.split([text]), rules.boundary_probabilities([text])
    assert probabilities.shape == (len(text),)
    assert probabilities.dtype == np.float32
    ends = np.cumsum([len(piece) for piece in pieces]) - 1
    assert np.flatnonzero(probabilities).tolist() == ends.tolist()


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=TEXTS, threshold=st.sampled_from([None, 0, 0.01, 0.25, 0.5, 1]))
def test_a_model_cuts_where_its_probabilities_are_above_the_threshold(
    learned: Segmenter, text: str, threshold: float | None
) -> None:
    [probabilities] = learned.boundary_probabilities([text])
    [segments] = learned.split([text], threshold)
    ends = np.flatnonzero(probabilities > (0.25 if threshold is None else threshold)).tolist()
    assert segments == cut(text, ends)
    assert "".join(segments) == text.replace("\n", "")


@pytest.mark.parametrize("text", ["\u200b\u200b", "\ufffd", " ", "👩‍👩‍👧", "x", "\0"])
def test_a_text_without_words_is_one_segment(learned: Segmenter, text: str) -> None:
    assert learned.split([text, PUNCTUATED], 1.0)[0] == [text]


def test_with_both_the_punctuation_of_each_text_decides(
    mixed: Segmenter, rules: Segmenter, learned: Segmenter
) -> None:
    texts = [STRIPPED, PUNCTUATED, "", UNTRUSTED, "a man walks\n\na dog barks", "A man sits."]
    ruled = {PUNCTUATED, "A man sits."}
    expected = [(rules if text in ruled else learned).split([text])[0] for text in texts]
    assert mixed.split(texts) == expected
    for text, values in zip(texts, mixed.boundary_probabilities(texts), strict=True):
        [same] = (rules if text in ruled else learned).boundary_probabilities([text])
        np.testing.assert_array_equal(values, same)
    assert mixed.split([STRIPPED], 0.9) == learned.split([STRIPPED], 0.9)
    assert mixed.split([PUNCTUATED], 0.9) == rules.split([PUNCTUATED])


def test_one_of_both_can_be_chosen(
    mixed_bundle: Path, rules: Segmenter, learned: Segmenter
) -> None:
    texts = [STRIPPED, PUNCTUATED, UNTRUSTED]
    with Segmenter.open(mixed_bundle, "cpu", use="rules") as chosen:
        assert chosen.split(texts) == rules.split(texts)
        assert chosen.identity == rules.identity
    with Segmenter.open(mixed_bundle, "cpu", use="learned") as chosen:
        assert chosen.split(texts) == learned.split(texts)
        assert chosen.identity == learned.identity


def test_what_a_bundle_lacks_cannot_be_chosen(tiny_bundle: Path, sat_bundle: Path) -> None:
    with pytest.raises(BundleError, match="it has no learned segmenter, only rules"):
        Segmenter.open(tiny_bundle, use="learned")
    with pytest.raises(BundleError, match="it has no rules, only the learned segmenter"):
        Segmenter.open(sat_bundle, use="rules")
    with pytest.raises(
        ValueError, match="use must be one of 'auto', 'rules', 'learned', not 'sat'"
    ):
        Segmenter.open(sat_bundle, use="sat")


def test_the_identity_names_everything_that_may_cut(
    sat_bundle: Path, rules: Segmenter, learned: Segmenter, mixed: Segmenter
) -> None:
    assert learned.spec.model is not None
    assert rules.identity.startswith("sentencex@")
    assert learned.identity == open_bundle(sat_bundle).identity(learned.spec.model)
    assert learned.identity.startswith("tiny-sat@")
    assert mixed.identity == f"{rules.identity}+{learned.identity}"


def test_sentences_for_scoring(rules: Segmenter, learned: Segmenter, mixed: Segmenter) -> None:
    assert rules.sentences("A man.\n\n\n \nA dog.", "x") == ["A man.\n\n\n \n", "A dog."]
    assert rules.sentences("a man walks\n\na dog barks", "x") == ["a man walks\n\n", "a dog barks"]
    assert mixed.sentences(PUNCTUATED, "x") == rules.sentences(PUNCTUATED, "x")
    assert mixed.sentences(STRIPPED, "x") is mixed.sentences(UNTRUSTED, "x") is None
    # Without a model half of the punctuation must do.
    assert len(rules.sentences(UNTRUSTED, "x") or []) == 2
    with pytest.raises(TextError, match="^generated: the text has no sentence punctuation"):
        rules.sentences(STRIPPED, "generated")
    with pytest.raises(
        TextError, match="^generated: 101 words have no sentence punctuation between them"
    ):
        rules.sentences("word " * MAX_WORDS + "end.", "generated")
    assert learned.sentences(PUNCTUATED, "x") is None


def test_beside_rules_the_model_is_loaded_when_a_text_needs_it(
    mixed_bundle: Path, calls_of: Callable[[Any, str], list[Any]]
) -> None:
    loaded = calls_of(segmenter, "BoundaryModel")
    with Segmenter.open(mixed_bundle, "cpu") as opened:
        opened.split([PUNCTUATED])
        assert not loaded
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: opened.split([STRIPPED]), range(8)))
        assert results == [results[0]] * 8
        assert len(loaded) == 1


def test_a_named_device_fails_early(mixed_bundle: Path, tiny_bundle: Path) -> None:
    with pytest.raises(DeviceError, match="CUDAExecutionProvider"):
        Segmenter.open(mixed_bundle, "cuda:0")
    with pytest.raises(ValueError, match="^device must be"):
        Segmenter.open(mixed_bundle, "gpu")
    Segmenter.open(tiny_bundle, "cuda:0").close()  # rules need none


def test_a_closed_segmenter_says_so(mixed_bundle: Path) -> None:
    opened = Segmenter.open(mixed_bundle, "cpu")
    opened.close()
    opened.close()
    with pytest.raises(RuntimeError, match="the segmenter is closed"):
        opened.split([STRIPPED])


def test_bad_arguments_are_named(rules: Segmenter, learned: Segmenter) -> None:
    with pytest.raises(ValueError, match="^threshold: the rule-based segmenter has no threshold"):
        rules.split(["a."], threshold=0.5)
    for threshold in (-0.1, 1.1, float("nan"), "0.5", True):
        with pytest.raises(ValueError, match=r"^threshold must be a number in \[0, 1\], not"):
            learned.split(["a."], threshold=threshold)  # type: ignore[arg-type]
    for opened in (rules, learned):
        for call in (opened.split, opened.boundary_probabilities):
            with pytest.raises(TypeError, match="^texts"):
                call("a.")
            with pytest.raises(TextError, match=r"^texts\[1\]: the text must be a string, not int"):
                call(["a.", 3])  # type: ignore[list-item]
            with pytest.raises(
                TextError, match=r"^texts\[0\]: the text holds a lone surrogate U\+DC00"
            ):
                call(["a.\udc00"])


def test_a_bundle_without_segmenter_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    manifest = json.loads((tiny_bundle / MANIFEST).read_text())
    manifest |= {"segmenter": None, "embedder": None, "files": []}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="it holds no segmenter"):
        Segmenter.open(tmp_path)
