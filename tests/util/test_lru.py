"""What is kept by text, within a bound of bytes."""

from __future__ import annotations

from vcs_runtime.util.lru import Recent


def test_the_oldest_goes_first_and_what_is_used_stays() -> None:
    recent: Recent[bytes] = Recent(2000, len)
    recent.put("a", b"x" * 500)
    recent.put("b", b"y" * 500)
    assert recent.get("a") == b"x" * 500
    recent.put("c", b"z" * 500)
    assert recent.get("b") is None
    assert recent.get("a") is not None
    assert recent.get("c") is not None


def test_the_bound_holds_for_anything_that_is_put() -> None:
    recent: Recent[bytes] = Recent(1000, len)
    recent.put("large", b"x" * 5000)
    assert recent.get("large") is None
    for i in range(100):
        recent.put(str(i), b"x")
    kept = [i for i in range(100) if recent.get(str(i)) is not None]
    assert kept == [97, 98, 99]
    recent.clear()
    assert recent.get("99") is None
    recent.put("99", b"x" * 600)
    assert recent.get("99") is not None
