"""Vectors kept in memory and in a folder."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sqlite3
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from importlib.metadata import version
from itertools import count, takewhile
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.flipped_bits import each_flipped_bit
from support.stories import story
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Scorer
from vcs_runtime.errors import CacheError
from vcs_runtime.inference import vector_cache
from vcs_runtime.inference.custom import PreparedTexts
from vcs_runtime.inference.device import import_onnxruntime
from vcs_runtime.inference.vector_cache import VectorCache
from vcs_runtime.inference.vector_store import VectorStore


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


def test_no_flipped_bit_of_a_vector_is_accepted(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model", 8)
    cache.store({"text": unit(0)})
    with closing(sqlite3.connect(cache.path)) as db:
        for bit in each_flipped_bit(db):
            assert cache.load(["text"]) == {}, bit
    assert np.array_equal(cache.load(["text"])["text"], unit(0))


def test_a_vector_under_another_key_or_of_another_type_is_not_used(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model", 8)
    cache.store({"a": unit(0), "b": unit(1), "c": unit(2)})
    with closing(sqlite3.connect(cache.path)) as db:
        rows = dict(db.execute("SELECT key, vector FROM vectors"))
        # Of another length, as of another model with this identity.
        VectorCache(tmp_path, "model", 16).store({"d": unit(3, 16)})
        first, second = list(rows)[:2]
        db.execute("UPDATE vectors SET vector = ? WHERE key = ?", (rows[second], first))
        for value in (7, 0.5, b"", b"short"):
            db.execute("UPDATE vectors SET vector = ? WHERE key = ?", (value, second))
            db.commit()
            found = cache.load(["a", "b", "c", "d"])
            assert len(found) == 1
            assert all(
                np.array_equal(vector, unit("abc".index(text))) for text, vector in found.items()
            )


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "vectors-3.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(CacheError, match=r"vectors-3\.sqlite: file is not a database"):
        VectorCache(tmp_path, "model", 8)


def test_what_was_not_used_for_the_longest_time_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(1, 10))
    monkeypatch.setattr(vector_cache.time, "time", lambda: next(now))
    first = VectorCache(tmp_path, "model", 1024, limit := 1 << 20)
    first.store({f"text {i}": unit(i, 1024) for i in range(200)})
    first.close()
    second = VectorCache(tmp_path, "model", 1024, limit)
    assert second.load(f"text {i}" for i in range(20)).keys() == {f"text {i}" for i in range(20)}
    second.close()
    VectorCache(tmp_path, "model", 1024, limit).store(
        {f"new {i}": unit(i, 1024) for i in range(100)}
    )
    third = VectorCache(tmp_path, "model", 1024, limit)
    found = third.load([*(f"text {i}" for i in range(200)), *(f"new {i}" for i in range(100))])
    assert {f"text {i}" for i in range(20)} | {f"new {i}" for i in range(100)} < found.keys()
    assert 120 < len(found) < 250


def test_vectors_of_a_clock_that_was_ahead_give_way_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [2.0**33]
    monkeypatch.setattr(vector_cache.time, "time", lambda: clock[0])
    with closing(VectorCache(tmp_path, "model", 1024, limit := 1 << 20)) as ahead:
        ahead.store({f"text {i}": unit(i, 1024) for i in range(200)})
    clock[0] = 2.0**30
    with closing(VectorCache(tmp_path, "model", 1024, limit)) as right:
        right.store(new := {f"new {i}": unit(i, 1024) for i in range(100)})
    found = VectorCache(tmp_path, "model", 1024, limit).load(
        [*new, *map("text {}".format, range(200))]
    )
    assert new.keys() < found.keys()
    assert len(found) < 250


def test_a_process_that_only_reads_does_not_collect_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "_MOST_USED", 10)
    cache = VectorCache(tmp_path, "model", 8, 1 << 20)
    cache.store({f"text {i}": unit(i) for i in range(50)})
    for i in range(50):
        assert len(cache.load([f"text {i}"])) == 1
        assert len(cache._used) <= 10


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_only_the_owner_may_read_and_write_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        VectorCache(tmp_path / "a" / "b", "model", 8).store({"text": unit(0)})
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "a").rglob("*")}
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("name", ["", "vectors-3.sqlite"])
def test_one_that_others_can_write_to_is_refused(tmp_path: Path, name: str) -> None:
    VectorCache(tmp_path, "model", 8).store({"text": unit(0)})
    (tmp_path / name).chmod(0o777)
    with pytest.raises(CacheError, match="other users own or can write to"):
        VectorCache(tmp_path, "model", 8)


def test_a_view_in_place_of_the_vectors_is_refused(tmp_path: Path) -> None:
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS key, i AS"
        " vector FROM n"
    )
    with closing(sqlite3.connect(tmp_path / "vectors-3.sqlite")) as db:
        db.execute(f"CREATE VIEW vectors AS {endless}")
    with pytest.raises(CacheError, match="the file is not a vector cache"):
        VectorCache(tmp_path, "model", 8)


@pytest.mark.skipif(os.name == "nt", reason="SQLite locks otherwise there")
def test_a_file_system_without_locks_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.lockf", refuse)
    with pytest.raises(CacheError, match=r"vectors-3\.sqlite: .*No locks available"):
        VectorCache(tmp_path, "model", 8)


@pytest.mark.parametrize("happens", ["before", "while it works", "at the end"])
def test_what_commands_keep_unasked_may_fail(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    monkeypatch.setenv("VCS_RUNTIME_CACHE", str(tmp_path / "store"))
    calls = {"before": "_connection", "while it works": "store", "at the end": "close"}

    def fail(*_: object) -> None:
        raise CacheError("no locks")

    with Scorer.open(tiny_bundle, "cpu") as scorer:
        expected = scorer.score(story(1), story(2))
    with monkeypatch.context() as patch:
        patch.setattr(VectorCache, calls[happens], fail)
        with Scorer.open(tiny_bundle, "cpu", cache=tmp_path / "store") as scorer:
            assert scorer.score(story(1), story(2)) == expected
        assert scorer.cache_failure == "no locks"
        with (
            pytest.raises(CacheError),
            Scorer.open(tiny_bundle, "cpu", cache=tmp_path / "other") as scorer,
        ):
            scorer.score(story(1), story(2))
    with Scorer.open(tiny_bundle, "cpu", cache=tmp_path / "store") as scorer:
        assert scorer.score(story(1), story(2)) == expected
    assert not scorer.cache_failure


def _write(folder: Path, start: int) -> None:
    cache = VectorCache(folder, "model", 8)
    for i in range(start, start + 60):
        cache.store({f"text {i % 80}": unit(i % 80)})
    cache.close()


@pytest.mark.slow
def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_write, args=(tmp_path, start)) for start in (0, 20, 40)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANGS_AFTER_S)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    found = VectorCache(tmp_path, "model", 8).load([f"text {i}" for i in range(80)])
    assert len(found) == 80
    assert all(np.array_equal(vector, unit(int(text.split()[1]))) for text, vector in found.items())


@pytest.mark.slow
def test_a_second_cache_of_a_process_ends_no_lock_of_the_first(tmp_path: Path) -> None:
    first, second = (VectorCache(tmp_path, "model", 8) for _ in range(2))
    second.close()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(_write, tmp_path, 0).result(
            HANGS_AFTER_S
        )  # if no other has a lock, closing removes the log
    first.store({"later": unit(1)})
    assert (tmp_path / "vectors-3.sqlite-wal").exists()
    first.close()
    assert VectorCache(tmp_path, "model", 8).load(["later", "text 59"]).keys() == {
        "later",
        "text 59",
    }


def _meet_at(barrier: Barrier) -> None:
    global _together
    _together = barrier


def _open_together(folder: Path) -> None:
    _together.wait(HANGS_AFTER_S)
    VectorCache(folder, "model", 8).close()


@pytest.mark.slow
def test_several_processes_may_open_a_new_folder_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, spawn, _meet_at, [spawn.Barrier(4)]) as pool:
        for number in range(40):
            assert list(pool.map(_open_together, [tmp_path / str(number)] * 4)) == [None] * 4


@pytest.mark.slow
@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork"
)
# Forking beside threads: just what is tested.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_vectors_are_written_writes_its_own(tmp_path: Path) -> None:
    cache, ended = VectorCache(tmp_path, "model", 8), threading.Event()

    def write() -> None:
        for i in takewhile(lambda _: not ended.is_set(), count()):
            cache.store({f"text {i % 80}": unit(i % 80)})

    writing = threading.Thread(target=write)
    writing.start()
    fork = multiprocessing.get_context("fork")
    try:
        for start in range(12):
            child = fork.Process(target=_write, args=(tmp_path, start))
            child.start()
            child.join(HANGS_AFTER_S)
            if child.is_alive():
                child.kill()
            assert child.exitcode == 0, start
    finally:
        ended.set()
        writing.join()
    assert len(cache.load([f"text {i}" for i in range(71)])) == 71
    with closing(sqlite3.connect(cache.path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_warm_folder_needs_no_model_and_gives_the_same_scores(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(story(i), story(i + 1)) for i in range(6)]
    with Scorer.open(tiny_bundle, device="cpu", cache=tmp_path) as first:
        expected = first.score_many(pairs)
    with Scorer.open(tiny_bundle, device="cpu", cache=tmp_path) as second:

        def fail(*_: object) -> None:
            raise AssertionError("the model was run")

        monkeypatch.setattr(second.embedder, "prepare", fail)
        assert second.score_many(pairs) == expected


def embedded(folder: Path, **models: Any) -> int:
    """Score pairs with a folder of vectors, and return how many texts the model embedded."""
    texts: list[str] = []
    with Scorer.open(cache=folder, **models) as scorer:
        prepare = scorer.embedder.prepare

        def counting(wanted: list[str], *rest: Any) -> PreparedTexts:
            texts.extend(wanted)
            return prepare(wanted, *rest)

        scorer.embedder.prepare = counting  # type: ignore[method-assign,assignment]
        scorer.score_many([(story(i), story(i + 1)) for i in range(3)])
    return len(texts)


def update(patch: pytest.MonkeyPatch, library: str) -> None:
    patch.setattr(
        "vcs_runtime.inference.environment.version",
        lambda name: "99.0" if name == library else version(name),
    )


def move(patch: pytest.MonkeyPatch) -> None:
    simd = {"SIMD Extensions": {"baseline": ["X86_V2"], "found": ["another"]}}
    patch.setattr(np, "show_config", lambda mode: simd)


CPU = {
    "onnxruntime": lambda patch: patch.setattr(import_onnxruntime(), "__version__", "99.0"),
    "tokenizers": lambda patch: update(patch, "tokenizers"),
    "numpy": lambda patch: patch.setattr(np, "__version__", "99.0"),
    "numba": lambda patch: update(patch, "numba"),
    "architecture": lambda patch: patch.setattr("platform.machine", lambda: "vax"),
    "processor": move,
}
OPENVINO = {
    "openvino": lambda patch: update(patch, "openvino"),
    "limit": lambda patch: patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2"),
    "limit by its older name": lambda patch: patch.setenv("DNNL_MAX_CPU_ISA", "AVX2"),
    "limit of OpenVINO": lambda patch: patch.setenv("OV_CPU_MAX_ISA", "avx2"),
}


@pytest.mark.parametrize(
    ("device", "change"),
    [
        *(("cpu", name) for name in CPU),
        *(("openvino:fp32", name) for name in (*OPENVINO, "tokenizers", "processor")),
    ],
)
def test_vectors_of_another_environment_are_not_taken(
    tiny_bundle: Path, tmp_path: Path, device: str, change: str
) -> None:
    if device != "cpu":
        pytest.importorskip("openvino")
    models = {"bundle": tiny_bundle, "device": device}
    new = embedded(tmp_path, **models)
    assert new > 0
    assert embedded(tmp_path, **models) == 0
    with pytest.MonkeyPatch.context() as patch:
        (CPU | OPENVINO)[change](patch)
        assert embedded(tmp_path, **models) == new
        assert embedded(tmp_path, **models) == 0
    assert embedded(tmp_path, **models) == 0


def test_a_limit_that_a_device_does_not_read_leaves_its_vectors(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert embedded(tmp_path, bundle=tiny_bundle, device="cpu") > 0
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert embedded(tmp_path, bundle=tiny_bundle, device="cpu") == 0


def test_vectors_of_an_earlier_environment_give_way_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = count(1)
    monkeypatch.setattr(vector_cache.time, "time", lambda: next(now))
    for name in ("earlier", "this"):
        cache = VectorCache(tmp_path, name, 1024, limit := 1 << 20)
        cache.store({f"text {i}": unit(i, 1024) for i in range(150)})
        cache.close()
    VectorCache(tmp_path, "this", 1024, limit).close()  # which is opened, and shrinks the file
    texts = [f"text {i}" for i in range(150)]
    assert len(VectorCache(tmp_path, "this", 1024).load(texts)) == 150
    assert len(VectorCache(tmp_path, "earlier", 1024).load(texts)) < 100


def test_the_memory_forgets_what_was_not_used_lately(scorer: Scorer) -> None:
    calls: list[str] = []
    prepare = scorer.embedder.prepare

    def get(texts: list[str]) -> None:
        request = store.request(texts)
        request.run()
        assert request.vectors().keys() == set(texts)

    class Spy:
        dimension = scorer.embedder.dimension

        def prepare(self, texts: list[str]) -> PreparedTexts:
            calls.extend(texts)
            return prepare(texts)

    store = VectorStore(Spy(), None, memory_bytes=3 * (4 * 32 + 301))  # type: ignore[arg-type]
    get(["a", "b", "c"])
    get(["a"])  # used again: "b" is now the oldest
    get(["d"])
    get(["a", "c", "d"])
    assert calls == ["a", "b", "c", "d"]
    get(["b"])
    assert calls[-1] == "b"
