"""Hostile values, and damage to bytes and to values."""

from __future__ import annotations

import random
from typing import Any

from support.stories import story

#: Texts that have broken something somewhere.
STRINGS = (
    "", " ", "\x00", "a\x00b", "\ud800", "\udfff.", "\x1b]0;pwned\x07\x1b[2J\x9b", "[/x]", "[bold]", "\u202e\u2066",
    "\u2028\u2029", "\ufeff", "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "</script><!--",
    "=HYPERLINK(\"http://x\")", "@SUM(A1)", "../../etc/passwd", "/dev/null", "C:\\x", "~nobody/x", "$(id)", "`id`", "%s%n{}",
    "\r\n", "\n", "\t", "-", "--", "-1", "nan", "inf", "1e400", "0x10", "1_000", "10" * 200, "None", "null", "true",
    "{\"a\": 1}", "[[[[", "\\", "'", '"', "e\u0301", "\U0001f415\u200d\U0001f9ba", "\U0010ffff", "門", "رجل", ". . .", "...!", "'" * 300, "a" * 5000,
    "A. " * 400, "# title\n- item\n", "<think>x</think>", "<think>", "```", "\x85", "\u00ad", "\u200b", "\ufffe",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 0.5, -0.5, 1.0000001, 1e-320, 1e300, -1e300, float("nan"), float("inf"), float("-inf"),
    2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 1024, 65535, 65536,
)  # fmt: skip


def text(rng: random.Random) -> str:
    """A text to score: mostly a story, at times something hostile, or both."""
    kind = rng.random()
    if kind < 0.7:
        return story(rng.randrange(400), rng.randint(1, 4))
    hostile = rng.choice(STRINGS)
    if kind < 0.85:
        return hostile
    parts = [story(rng.randrange(400), rng.randint(1, 3)), hostile]
    rng.shuffle(parts)
    return rng.choice((" ", "", "\n")).join(parts)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any value that JSON can hold, and some that it cannot."""
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind in (1, 2):
        return rng.choice(NUMBERS)
    if kind < 6:
        return text(rng)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(STRINGS): value(rng, depth + 1) for _ in range(rng.randrange(4))}


_PIECES = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\r", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b";", b"\t", b":",
    b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"-", b"1e999", b"9" * 400, b"9" * 5000, b"[" * 3000, b'{"a":' * 3000,
    b'"id": 1, ', b"null", b"true", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"''", b'""', b"</script>", b"\x1b[2J",
)  # fmt: skip


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Bytes with one to three damages: cut, flipped, spliced, doubled, filled with what readers dislike."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        size = len(data)
        at = rng.randrange(size + 1)
        length = rng.choice((1, 2, 8, 64, 512))
        match rng.randrange(9):
            case 0:
                del data[at:]
            case 1 if size:
                data[at % size] ^= 1 << rng.randrange(8)
            case 2 if size:
                data[at % size] = rng.randrange(256)
            case 3:
                del data[at : at + length]
            case 4:
                data[at:at] = rng.choice(_PIECES)
            case 5:
                data[at : at + length] = rng.choice(_PIECES)
            case 6:
                other = rng.randrange(size + 1)
                data[at:at] = data[other : other + length]
            case 7:
                data[at : at + length] = rng.randbytes(length)
            case 8:
                data = bytearray(
                    rng.choice((b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), data + data))
                )
    return bytes(data)
