"""Vectors kept in memory and in a folder."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from support.stories import story
from vcs_runtime import Scorer
from vcs_runtime.errors import CacheError
from vcs_runtime.inference.vector_cache import VectorCache, VectorStore


def unit(seed: int, dimension: int = 8) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def test_what_is_stored_is_found_again_to_the_bit(tmp_path: Path) -> None:
    vectors = {f"text {i}": unit(i) for i in range(1200)}  # more than one SELECT takes
    cache = VectorCache(tmp_path / "made" / "here", "model", 8)
    cache.store(vectors)
    cache.close()
    again = VectorCache(tmp_path / "made" / "here", "model", 8)
    found = again.load([*vectors, "unknown"])
    again.close()
    assert found.keys() == vectors.keys()
    assert all(np.array_equal(found[text], vector) for text, vector in vectors.items())


def test_another_model_finds_nothing(tmp_path: Path) -> None:
    VectorCache(tmp_path, "model", 8).store({"text": unit(0)})
    assert VectorCache(tmp_path, "other model", 8).load(["text"]) == {}


def test_a_damaged_vector_is_not_used(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model", 8)
    longer = np.eye(16, dtype="<f4")[0].tobytes()  # of unit length, but of another model's
    for text, damaged in (("a", bytes(32)), ("b", b"short"), ("d", longer)):
        cache.store({text: unit(0)})
        with sqlite3.connect(cache.path) as db:
            db.execute("UPDATE vectors SET vector = ? WHERE vector = ?", (damaged, unit(0).tobytes()))
    cache.store({"c": unit(2)})
    assert list(cache.load(["a", "b", "c", "d"])) == ["c"]


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "vectors-1.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(CacheError, match=r"vectors-1\.sqlite: file is not a database"):
        VectorCache(tmp_path, "model", 8)


def _write(folder: Path, start: int) -> None:
    cache = VectorCache(folder, "model", 8)
    for i in range(start, start + 60):
        cache.store({f"text {i % 80}": unit(i % 80)})
    cache.close()


def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_write, args=(tmp_path, start)) for start in (0, 20, 40)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    found = VectorCache(tmp_path, "model", 8).load([f"text {i}" for i in range(80)])
    assert len(found) == 80
    assert all(np.array_equal(vector, unit(int(text.split()[1]))) for text, vector in found.items())


def test_a_warm_folder_needs_no_model_and_gives_the_same_scores(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(story(i), story(i + 1)) for i in range(6)]
    with Scorer.open(tiny_bundle, device="cpu", cache=tmp_path) as first:
        expected = first.score_many(pairs)
    with Scorer.open(tiny_bundle, device="cpu", cache=tmp_path) as second:

        def fail(*_: object) -> None:
            raise AssertionError("the model was run")

        monkeypatch.setattr(second.embedder, "embed", fail)
        assert second.score_many(pairs) == expected


def test_the_memory_forgets_what_was_not_used_lately(scorer: Scorer) -> None:
    calls: list[str] = []
    embed = scorer.embedder.embed

    class Spy:
        dimension = scorer.embedder.dimension

        def embed(self, texts: list[str]) -> np.ndarray:
            calls.extend(texts)
            return embed(texts)

    store = VectorStore(Spy(), None, memory_bytes=3 * (4 * 32 + 301))  # type: ignore[arg-type]
    store.get(["a", "b", "c"])
    store.get(["a"])  # used again: "b" is now the oldest
    store.get(["d"])
    store.get(["a", "c", "d"])
    assert calls == ["a", "b", "c", "d"]
    store.get(["b"])
    assert calls[-1] == "b"
