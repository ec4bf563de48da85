"""The LRU cache keeps to its limit and drops the oldest entries."""

from __future__ import annotations

from vcs_runtime.util.lru import LRUCache


def test_the_oldest_entry_is_dropped_first_and_used_ones_stay() -> None:
    cache: LRUCache[bytes] = LRUCache(2000, len)
    cache.put("a", b"x" * 500)
    cache.put("b", b"y" * 500)
    assert cache.get("a") == b"x" * 500
    cache.put("c", b"z" * 500)
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.get("c") is not None


def test_the_limit_holds_whatever_is_stored() -> None:
    cache: LRUCache[bytes] = LRUCache(1000, len)
    cache.put("large", b"x" * 5000)
    assert cache.get("large") is None
    for i in range(100):
        cache.put(str(i), b"x")
    stored = [i for i in range(100) if cache.get(str(i)) is not None]
    assert stored == [97, 98, 99]
    cache.clear()
    assert cache.get("99") is None
    cache.put("99", b"x" * 600)
    assert cache.get("99") is not None


def test_keys_count() -> None:
    cache: LRUCache[bytes] = LRUCache(2000, len)
    cache.put("a", b"")
    cache.put("k" * 1500, b"")
    assert cache.get("a") is None
    assert cache.get("k" * 1500) == b""


def test_storing_a_text_again_takes_no_room() -> None:
    cache: LRUCache[bytes] = LRUCache(1000, len)
    cache.put("a", b"")
    for _ in range(10):
        cache.put("b", b"")
    assert cache.get("a") is not None


def test_a_limit_below_0_keeps_nothing() -> None:
    cache: LRUCache[bytes] = LRUCache(-1, len)
    cache.put("a", b"x")
    assert cache.get("a") is None
