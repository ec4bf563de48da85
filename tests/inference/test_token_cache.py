"""Vectors of tokens kept in memory and in a folder: with and without a cache they are the same."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from support.flipped_bits import each_flipped_bit
from support.stories import story
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Embedder
from vcs_runtime.inference.token_vectors import TokenLayer, TokenRequest, TokenVectors
from vcs_runtime.inference.vector_cache import VectorCache
from vcs_runtime.inference.vector_store import VectorRequest, VectorStore

TEXTS = [story(i, 1 + i % 4) for i in range(12)]
LAYER = TokenLayer("states", 2)


class Watched(Embedder):
    """An embedder that notes each request, and whose tokens were wanted."""

    asked: list[tuple[list[str], set[str]]]

    def prepare(self, texts, tokens=None):  # type: ignore[no-untyped-def]
        self.asked.append((sorted(texts), set(tokens.texts) if tokens else set()))
        return super().prepare(texts, tokens)


@pytest.fixture
def embedder(tiny_bundle: Path) -> Iterator[Watched]:
    with Watched.open(tiny_bundle, "cpu") as opened:
        assert isinstance(opened, Watched)
        opened.asked = []
        yield opened


def cache_of(embedder: Embedder, folder: Path) -> VectorCache:
    return VectorCache(folder, embedder.cache_identity, embedder.dimension)


def get(
    store: VectorStore, texts: list[str], layer: TokenLayer, wanted: list[str]
) -> VectorRequest:
    request = store.request(texts, (), TokenRequest(layer, wanted))
    request.run()
    request.vectors()
    return request


def same(left: TokenVectors, right: TokenVectors) -> bool:
    return all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(left, right, strict=True)
    )


def some(tokens: int, width: int = 8, seed: int = 0) -> TokenVectors:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((tokens, width)).astype(np.float16)
    ids, spans = rng.integers(0, 900, tokens), rng.integers(0, 900, (tokens, 2))
    return TokenVectors(vectors, ids.astype(np.int32), spans.astype(np.int32))


def test_with_and_without_a_cache_tokens_are_the_same(embedder: Watched, tmp_path: Path) -> None:
    layer = embedder.show_tokens()
    plain = get(VectorStore(embedder, None, 1 << 20), TEXTS, layer, TEXTS)
    first = get(VectorStore(embedder, cache_of(embedder, tmp_path), 1 << 20), TEXTS, layer, TEXTS)
    del embedder.asked[:]
    store = VectorStore(embedder, cache_of(embedder, tmp_path), 1 << 20)
    for _ in range(2):  # from the folder, then from memory
        again = get(store, TEXTS, layer, TEXTS)
        for text in TEXTS:
            assert np.array_equal(plain.known[text], again.known[text])
            assert same(plain.tokens[text], again.tokens[text])
            assert same(plain.tokens[text], first.tokens[text])
    assert embedder.asked == []


def test_only_what_is_missing_is_embedded_and_vectors_of_texts_stay(
    embedder: Watched, tmp_path: Path
) -> None:
    layer = embedder.show_tokens()
    store = VectorStore(embedder, cache_of(embedder, tmp_path), 1 << 20)
    before = store.request(TEXTS[:6])
    before.run()
    kept = dict(before.vectors())
    after = get(store, TEXTS, layer, TEXTS[4:8])
    assert [asked for _, asked in embedder.asked] == [set(), set(TEXTS[4:8])]
    assert embedder.asked[1][0] == sorted(TEXTS[4:])
    assert after.tokens.keys() == set(TEXTS[4:8])
    assert all(
        after.known[text] is kept[text] or (after.known[text] == kept[text]).all() for text in kept
    )
    assert after.known.keys() == set(TEXTS)


def test_an_earlier_request_gives_its_tokens_and_another_layer_has_its_own(
    embedder: Watched,
) -> None:
    last, first = embedder.show_tokens(), embedder.show_tokens(0)
    store = VectorStore(embedder, None, 1 << 20)
    requests = [store.request(TEXTS[:3], (), TokenRequest(last, TEXTS[:2]))]
    for layer, wanted in ((last, TEXTS[:1]), (last, TEXTS[:3]), (first, TEXTS[:1])):
        requests.append(store.request(TEXTS[:3], tuple(requests), TokenRequest(layer, wanted)))
    for request in requests:
        request.run()
        request.vectors()
    assert [texts for texts, _ in embedder.asked] == [sorted(TEXTS[:3]), [TEXTS[2]], [TEXTS[0]]]
    assert [set(request.tokens) for request in requests] == [
        set(TEXTS[:2]),
        set(TEXTS[:1]),
        set(TEXTS[:3]),
        set(TEXTS[:1]),
    ]
    assert same(requests[0].tokens[TEXTS[0]], requests[2].tokens[TEXTS[0]])
    assert not np.array_equal(
        requests[0].tokens[TEXTS[0]].vectors, requests[3].tokens[TEXTS[0]].vectors
    )


def test_no_flipped_bit_of_tokens_is_accepted(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model", 8)
    cache.store_tokens({"text": some(2)}, LAYER)
    request = TokenRequest(LAYER, ["text"])
    assert same(cache.load_tokens(request)["text"], some(2))
    with closing(sqlite3.connect(cache.path)) as db:
        for bit in each_flipped_bit(db):
            assert cache.load_tokens(request) == {}, bit


def test_tokens_and_vectors_of_a_text_do_not_meet(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model", None)
    cache.store_tokens({"text": some(3)}, LAYER)
    assert cache.load(["text"]) == {}
    cache.store({"text": np.ones(8, np.float32)})
    assert same(cache.load_tokens(TokenRequest(LAYER, ["text"]))["text"], some(3))
    assert cache.load_tokens(TokenRequest(TokenLayer("other", 1), ["text"])) == {}
    assert VectorCache(tmp_path, "other", None).load_tokens(TokenRequest(LAYER, ["text"])) == {}


def test_texts_of_no_tokens_are_kept_and_those_of_very_many_are_not(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model", 8)
    tokens = {"": some(0), "long": some(1280, 384), "too long": some(1400, 384)}
    cache.store_tokens(tokens, LAYER)
    found = cache.load_tokens(TokenRequest(LAYER, list(tokens)))
    assert found.keys() == {"", "long"}
    assert all(same(tokens[text], own) for text, own in found.items())
    assert cache.path.stat().st_size < 3 << 20


def _write(folder: Path, start: int) -> None:
    cache = VectorCache(folder, "model", 8)
    for i in range(start, start + 40):
        cache.store_tokens({f"text {i % 50}": some(5, seed=i % 50)}, LAYER)
    cache.close()


@pytest.mark.slow
def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_write, args=(tmp_path, start)) for start in (0, 20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANGS_AFTER_S)
    assert [process.exitcode for process in processes] == [0, 0]
    texts = [f"text {i}" for i in range(50)]
    found = VectorCache(tmp_path, "model", 8).load_tokens(TokenRequest(LAYER, texts))
    assert all(same(found[text], some(5, seed=i)) for i, text in enumerate(texts))
