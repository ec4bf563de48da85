"""Texts to vectors on a tiny model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.changed_bundles import edit, relist
from support.stories import story
from support.tiny_bert import build_tiny_bundle
from vcs_runtime import BundleError, Embedder, TextError
from vcs_runtime.bundle.opening import Bundle, open_bundle

TEXTS = [story(i, 1 + i % 4) for i in range(60)] + ["a", "", "👍", "x" * 300, "man " * 200]


@pytest.fixture(scope="module")
def embedder(tiny_bundle: Path) -> Iterator[Embedder]:
    with Embedder.open(tiny_bundle, device="cpu") as opened:
        yield opened


def test_rows_are_float32_unit_vectors(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.spec.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert embedder.embed([]).shape == (0, embedder.spec.dimension)


def test_a_vector_is_the_same_alone_batched_shuffled_and_repeated_to_the_bit(
    embedder: Embedder,
) -> None:
    batched = embedder.embed(TEXTS)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    assert np.array_equal(batched, alone)
    order = random.Random(0).choices(range(len(TEXTS)), k=150)
    assert np.array_equal(embedder.embed([TEXTS[i] for i in order]), batched[order])


def test_the_number_of_threads_does_not_matter(tiny_bundle: Path, embedder: Embedder) -> None:
    with Embedder.open(tiny_bundle, device="cpu", threads=1) as single:
        assert np.array_equal(single.embed(TEXTS), embedder.embed(TEXTS))


def test_a_long_text_is_the_mean_of_its_windows_weighted_by_tokens(embedder: Embedder) -> None:
    # 72 tokens, windows of 30 at most.
    words = "man walks into the garden and the dog runs".split() * 8
    whole = embedder.embed([" ".join(words)])[0]
    windows = embedder.embed([" ".join(words[i : i + 24]) for i in (0, 24, 48)])
    mean = (windows.astype(np.float64) * 24).sum(axis=0)
    np.testing.assert_allclose(whole, mean / np.linalg.norm(mean), atol=1e-6)
    # Windows of 2 and 3 tokens weigh 2 and 3.
    [uneven] = embedder.embed(["man walks into the garden"], max_length=5)
    short, long = embedder.embed(["man walks", "into the garden"]).astype(np.float64)
    mean = 2 * short + 3 * long
    np.testing.assert_allclose(uneven, mean / np.linalg.norm(mean), atol=1e-6)
    # Nothing is cut off: the last word counts.
    assert np.abs(embedder.embed([" ".join([*words[:-1], "horse"])])[0] - whole).max() > 1e-4


def test_a_text_that_fits_exactly_is_one_window(embedder: Embedder) -> None:
    words = ["man"] * (embedder.spec.max_tokens - 2)
    assert np.array_equal(
        embedder.embed([" ".join(words)]),
        embedder.embed([" ".join(words)], max_length=embedder.spec.max_tokens),
    )


def test_an_instruction_stands_before_the_text(embedder: Embedder) -> None:
    assert np.array_equal(
        embedder.embed(["dog runs"], instruction="the "), embedder.embed(["the dog runs"])
    )


def test_max_length_lowers_the_window(embedder: Embedder) -> None:
    text = "man walks into the garden"
    lowered = embedder.embed([text], max_length=5)
    assert np.abs(lowered - embedder.embed([text])).max() > 1e-4
    for wrong in (0, 2, embedder.spec.max_tokens + 1):
        with pytest.raises(ValueError, match=r"^max_length must be from 3 to 32"):
            embedder.embed([text], max_length=wrong)


def test_a_bundle_may_refuse_long_texts(tmp_path: Path) -> None:
    folder = build_tiny_bundle(tmp_path)
    edit(folder, lambda data: data["embedder"].update(long_text="error"))
    with Embedder.open(folder, device="cpu") as strict:
        strict.embed(["man walks"])
        with pytest.raises(TextError, match="a text has 40 tokens, but .* accepts at most 30"):
            strict.embed(["dog", "man " * 40])


def test_bad_arguments_are_named(embedder: Embedder) -> None:
    with pytest.raises(TypeError, match="^texts"):
        embedder.embed("a text")
    with pytest.raises(TextError, match=r"^texts\[1\]: the text must be a string, not NoneType"):
        embedder.embed(["a", None])  # type: ignore[list-item]


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    bundle = open_bundle(build_tiny_bundle(tmp_path))
    empty_graph = b"\x3a\x00"
    for content, reason in (
        (b"no protobuf", "this is not an ONNX graph"),
        (empty_graph, "ONNX Runtime cannot load it"),
    ):
        (bundle.root / "embedder/model.onnx").write_bytes(content)
        with pytest.raises(BundleError, match=rf"model\.onnx: {reason}"):
            Embedder.open(Bundle(bundle.root, bundle.manifest), device="cpu")
    (bundle.root / "embedder/tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match=r"tokenizer\.json: tokenizers cannot load it"):
        Embedder.open(Bundle(bundle.root, bundle.manifest), device="cpu")


def test_closing_twice_is_fine_and_using_it_afterwards_is_not(tiny_bundle: Path) -> None:
    opened = Embedder.open(tiny_bundle, device="cpu")
    opened.close()
    opened.close()
    with pytest.raises(RuntimeError, match="the embedder is closed"):
        opened.embed(["a"])


def test_a_model_whose_vectors_are_zeros_is_refused(tmp_path: Path) -> None:
    bundle = build_tiny_bundle(tmp_path)
    weights = bundle / "embedder/model.onnx.data"
    weights.write_bytes(bytes(weights.stat().st_size))
    relist(bundle)
    with (
        Embedder.open(bundle, device="cpu") as embedder,
        pytest.raises(BundleError, match=r"tiny-bert returned vectors of length 0 to 0, but"),
    ):
        embedder.embed([story(1, 12)])
