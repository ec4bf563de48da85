"""What attacks draw: hostile texts, values of any kind, and damage to bytes and to JSON."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from support.stories import story

Anything = st.SearchStrategy[Any]
#: Texts that have broken something somewhere.
STRINGS = (
    # Blanks and control characters.
    *("", " ", "\x00", "a\x00b", "\r\n", "\n", "\t", "\x85", "\x1b]0;pwned\x07\x1b[2J\x9b"),
    # Characters that other readers refuse, turn or hide.
    *("\ud800", "\udfff.", "\u202e\u2066", "\u2028\u2029", "\ufeff", "\u00ad", "\u200b", "\ufffe"),
    *("e\u0301", "\U0001f415\u200d\U0001f9ba", "\U0010ffff", "門", "رجل"),
    # Markup, and what other programs run.
    *("[/x]", "[bold]", "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'),
    *("</script><!--", '=HYPERLINK("http://x")', "@SUM(A1)", "$(id)", "`id`", "%s%n{}"),
    *("# title\n- item\n", "<think>x</think>", "<think>", "```"),
    # Paths and options.
    *("../../etc/passwd", "/dev/null", "C:\\x", "~nobody/x", "-", "--"),
    # Numbers and other values as text.
    *("-1", "nan", "inf", "1e400", "0x10", "1_000", "10" * 200, "None", "null", "true"),
    *('{"a": 1}', "[[[[", "\\", "'", '"'),
    # Without a word, or long.
    *(". . .", "...!", "'" * 300, "a" * 5000, "A. " * 400),
)
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 0.5, -0.5, 1.0000001, 1e-320, 1e300, -1e300),
    *(float("nan"), float("inf"), float("-inf"), 2**31, 2**63),
    *(-(2**63) - 1, 10**30, 10**400, 1024, 65535, 65536),
)
_PIECES = (
    # Marks and characters of JSON, CSV and lines.
    *(b"\r\n", b"\n", b"\r", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b";", b"\t", b":", b"-"),
    # Bytes that are no UTF-8, or that no text has.
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b"\\ud800", b"\\u0000", b"</script>", b"\x1b[2J"),
    # Values.
    *(b"NaN", b"Infinity", b"1e999", b"null", b"true", b"''", b'""', b'"id": 1, '),
    *(b"9" * 400, b"9" * 5000, b"[" * 3000, b'{"a":' * 3000),
)


def cases(usual: int, *, repeatable: bool = True) -> settings:
    """Perform this number of fixed cases in `make test`, and many times as many fresh ones in `make
    attack`.

    What depends on moments is not `repeatable`: a smaller case of it is not searched for.
    """
    percent = settings().max_examples
    phases = set(Phase) - (set() if repeatable else {Phase.shrink, Phase.explain})
    return settings(
        max_examples=max(1, usual * percent // 100),
        derandomize=percent <= 100,
        suppress_health_check=list(HealthCheck),
        phases=list(phases),
    )


def mostly(usual: Anything, *rare: Anything, times: int = 4) -> Anything:
    """Draw from `usual` so many times as often as from each of `rare`."""
    return st.integers(0, times + len(rare) - 1).flatmap(
        lambda i: usual if i < times else rare[i - times]
    )


def chance(draw: st.DrawFn, percent: int) -> bool:
    """Draw True so often."""
    return draw(st.integers(0, 99)) >= 100 - percent


STORIES = st.builds(story, st.integers(0, 399), st.integers(1, 4))
HOSTILE = mostly(st.sampled_from(STRINGS), st.text(max_size=20))
_MIXED = st.builds(
    lambda a, b, glue: f"{a}{glue}{b}", STORIES, HOSTILE, st.sampled_from((" ", "", "\n"))
)
#: Texts to score: mostly a story, at times something hostile, or both.
TEXTS = mostly(STORIES, HOSTILE, _MIXED, st.builds(str.__add__, HOSTILE, STORIES), times=7)
#: What JSON can hold, and some numbers that it cannot.
VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(STRINGS), inner, max_size=3)
    ),
    max_leaves=6,
)
#: Arguments of any type.
ANYTHING = VALUES | st.sampled_from(
    (b"bytes", object(), (), [[]], 1j, float, "cpu", ["a"], ("a", "b"))
)
_RIGHT = {
    "lct": (0, 0.5, 3),
    "lct_penalty": ("full", "excess"),
    "small_text": ("paper", "reference"),
    "regularizer": ("window", "length"),
}
_RIGHT |= dict.fromkeys(
    ("context_cutoff", "context_window", "nas_blend_factor", "nas_coverage_cutoff"), (0.1, 0.5, 1)
)
#: Arguments of `Params`, of which some are wrong.
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        name: mostly(st.sampled_from(right), ANYTHING, times=24) for name, right in _RIGHT.items()
    },
)


def for_argv(text: str) -> str:
    """A text as arguments can hold it: without NUL, and with surrogates only for bytes."""
    return text.replace("\0", "").replace("\ud800", "\udcff").replace("\udfff", "\udc80")


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes with one to three damages: cut, flipped, spliced, doubled, or filled."""
    kinds = st.sampled_from(
        ("cut", "flip", "remove", "insert", "overwrite", "fill", "copy", "whole")
    )
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        at = draw(st.integers(0, len(content)))
        kind, length, new = draw(kinds), draw(st.sampled_from((1, 2, 8, 64, 512))), b""
        if kind == "whole":
            others = (b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), content * 2)
            content = draw(st.sampled_from(others))
            continue
        if kind == "flip" and at < len(content):
            length, new = 1, bytes([content[at] ^ 1 << draw(st.integers(0, 7))])
        elif kind in ("insert", "overwrite"):
            new = draw(st.sampled_from(_PIECES))
        elif kind == "fill":
            new = draw(st.binary(min_size=1, max_size=length))
        elif kind == "copy":
            other = draw(st.integers(0, len(content)))
            new = content[other : other + length]
        end = {"cut": len(content), "insert": at, "copy": at}.get(kind, at + length)
        content = content[:at] + new + content[end:]
    return content


@st.composite
def exchanged(draw: st.DrawFn, given: Any) -> Any:
    """Parsed JSON, with one value exchanged, doubled or removed."""
    data = whole = deepcopy(given)
    while data:
        key = draw(st.sampled_from(list(data) if isinstance(data, dict) else range(len(data))))
        if isinstance(data[key], dict | list) and data[key] and chance(draw, 75):
            data = data[key]
            continue
        kind = draw(st.sampled_from(("exchange", "exchange", "remove", "double")))
        if kind == "remove":
            del data[key]
        elif kind == "double" and isinstance(data, list):
            data.insert(draw(st.integers(0, len(data))), data[key])
        elif isinstance(data[key], int) and chance(draw, 60):
            data[key] = draw(st.sampled_from((0, 1, -1, data[key] + 1, 2**31, 2**40)))
        else:
            data[key] = draw(VALUES)
        break
    return whole
